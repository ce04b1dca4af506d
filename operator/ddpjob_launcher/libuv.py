"""torch's store without libuv: torch asks for libuv by default even where it is built without.

The trainer's images have this module too, as `ddpjob_libuv`, so it imports nothing of ours.
"""

# ruff: noqa: PLC0415 -- torch is the image's, and loaded by the program

from __future__ import annotations

import os
import sys


class LibuvOff:
    """Turns libuv off in every store, as soon as torch.distributed is about to create the first."""

    def __init__(self, *, ask: bool) -> None:
        """With `ask` only where torch is built without it."""
        self._ask = ask

    def find_spec(self, name: str, *_: object) -> None:
        """Find nothing, but see what is about to be imported."""
        if name == "torch.distributed.distributed_c10d":
            sys.meta_path.remove(self)
            if not self._ask or not has_libuv():
                libuv_off()


def has_libuv() -> bool:
    """Whether torch's store can do what torch asks of it by default."""
    from torch._C._distributed_c10d import TCPStore

    try:
        TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    except RuntimeError as error:
        return "libuv" not in str(error)
    return True


def libuv_off() -> None:
    """Let each store of this process, and of those that it starts, do without libuv."""
    from torch._C._distributed_c10d import TCPStore

    create = TCPStore.__init__

    def init(store: object, *args: object, **kwargs: object) -> None:
        kwargs["use_libuv"] = False
        create(store, *args, **kwargs)

    TCPStore.__init__ = init
    os.environ["USE_LIBUV"] = "0"
