# ruff: noqa: INP001 - a module by itself, put where Python finds it
"""Lets torch's TCPStore work in a torch that is built without libuv, as Debian's is.

Such a torch refuses "use_libuv=True", which is the default everywhere and which the c10d rendezvous asks for whatever
USE_LIBUV says. Every Python process of the image imports this module at its start (ddpjob-libuv.pth), which costs
nothing until torch.distributed is imported.
"""

import functools
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_USES_THE_STORE = "torch.distributed.distributed_c10d"


class _Finder:
    """Finds nothing; it only learns of the import that must come after the change."""

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 part of the protocol
        target: ModuleType | None = None,  # noqa: ARG002 part of the protocol
    ) -> ModuleSpec | None:
        if name == _USES_THE_STORE:
            sys.meta_path.remove(self)
            _without_libuv(sys.modules["torch._C._distributed_c10d"].TCPStore)
        return None


def _without_libuv(store: Any) -> None:  # noqa: ANN401 a class made in C++
    original = store.__init__

    @functools.wraps(original)
    def init(*arguments: Any, **options: Any) -> None:  # noqa: ANN401 the original's
        original(*arguments, **{**options, "use_libuv": False})

    store.__init__ = init


sys.meta_path.insert(0, _Finder())
