"""What is changed in a program's torch, and in how it is loaded.

The trainer's images have this module too, as `ddpjob_torch`, and processes that a program spawns get its text: so it
imports nothing of ours.
"""

# ruff: noqa: PLC0415 -- torch is the image's, and loaded by the program
# ruff: noqa: ANN401, SLF001 -- torch's objects, of whatever version the image has
# ruff: noqa: PTH110, PTH118, PTH123, PTH208 -- pathlib is one of the modules that the worker leaves out

from __future__ import annotations

import gc
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.machinery import ModuleSpec

_C10D = "torch.distributed.distributed_c10d"
# One of these is set by Open MPI's mpirun, by MPICH's and Intel's, by MVAPICH's, and by whatever else starts by PMIx.
_STARTED_BY_MPI = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "PMIX_RANK")

# What the names of devices begin with that compute: those of NVIDIA, AMD, any maker's graphics, WSL, the kernel's own
# class of accelerators, Huawei, Intel's Gaudi, Cambricon, AWS, and TPUs.
_ACCELERATORS = ("nvidia", "kfd", "dri", "dxg", "accel", "davinci", "hl", "cambricon", "neuron", "vfio")
# Objects of a program that loads torch before it has done much else.
_FEW = 100_000
# What the names of the files begin with that hold the sizes of process groups.
GROUP = "group."
# Where the groups of this process are noted: nothing where this torch does not tell of them.
_watched: list[str] = []


@contextmanager
def uncollected() -> Iterator[None]:
    """Load modules without collecting garbage meanwhile, and leave what they are made of out of later collections.

    Loading torch makes a million objects that stay for good. The collector looked at them again and again, most of all
    at the end of the process: a fifth of the processor time of a short training. What the program has made before
    would be left out too, so that this is only done where that is little.
    """
    collects, few = gc.isenabled(), len(gc.get_objects()) < _FEW
    gc.disable()
    try:
        yield
        if few:
            gc.freeze()
    finally:
        if collects:
            gc.enable()


class AtImport:
    """Loads torch, and changes it as soon as torch.distributed is about to be used."""

    _loading = False

    def __init__(self, libuv: str, folder: str = "") -> None:
        """Change what is not as needed.

        Args:
            libuv: whether torch is built with it: yes, no, ask.
            folder: where the sizes of process groups are left, by this process and by those that it spawns; "" nowhere.
        """
        self._libuv, self._folder = libuv, folder

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Find nothing but torch, which the others find, and see what is about to be imported."""
        if name == "torch" and not self._loading:
            return self._find_torch()
        if name == _C10D:
            self._change()
        return None

    def _find_torch(self) -> ModuleSpec | None:
        from importlib.util import find_spec

        self._loading = True
        try:
            spec = find_spec("torch")
        finally:
            self._loading = False
        loader: Any = spec.loader if spec is not None else None
        load = getattr(loader, "exec_module", None)
        if load is not None:

            def exec_module(module: object) -> None:
                with uncollected():
                    load(module)

            loader.exec_module = exec_module
        return spec

    def _change(self) -> None:
        # Another list: the import goes on to the next finder of this one, the image's perhaps.
        sys.meta_path = [finder for finder in sys.meta_path if finder is not self]
        if self._libuv == "no" or (self._libuv == "ask" and not has_libuv()):
            libuv_off()
        hide_mpi()
        if not has_accelerator():
            # Without it accelerate, and with it transformers, trains a model in each process, as if none had any peers.
            os.environ.setdefault("ACCELERATE_USE_CPU", "true")
        if self._folder:
            watch_groups(self._folder)
            follow_spawned(self._libuv, self._folder)


def has_libuv() -> bool:
    """Whether torch's store can do what torch asks of it by default."""
    from torch._C._distributed_c10d import TCPStore

    try:
        TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    except RuntimeError as error:
        return "libuv" not in str(error)
    return True


def libuv_off() -> None:
    """Let each store of this process, and of those that it starts, do without libuv: torch asks for it by default."""
    from torch._C._distributed_c10d import TCPStore

    create = TCPStore.__init__

    def init(store: object, *args: object, **kwargs: object) -> None:
        kwargs["use_libuv"] = False
        create(store, *args, **kwargs)

    TCPStore.__init__ = init
    os.environ["USE_LIBUV"] = "0"


def hide_mpi() -> None:
    """Let torch be one without MPI, where neither mpirun has started the process nor the job says `backend: mpi`.

    Libraries take MPI wherever torch has it (accelerate does, and with it transformers). Without mpirun each process is
    then a group of its own, and trains a model of its own.
    """
    if os.environ.get("DDPJOB_BACKEND") == "mpi" or any(name in os.environ for name in _STARTED_BY_MPI):
        return
    from torch._C import _distributed_c10d as c10d

    if hasattr(c10d, "ProcessGroupMPI"):
        # torch.distributed concludes from this class what it is built with.
        del c10d.ProcessGroupMPI


def has_accelerator() -> bool:
    """Whether there is anything but CPUs to compute on, as far as the devices of this machine or container show."""
    try:
        return sys.platform != "linux" or any(name.startswith(_ACCELERATORS) for name in os.listdir("/dev"))
    except OSError:
        return True


def watch_groups(folder: str) -> None:
    """Note the size of each default process group that this process is in, and say if it is smaller than the job."""
    from torch._C import _distributed_c10d as c10d

    set_rank = getattr(c10d, "_set_global_rank", None)
    if set_rank is None:
        return
    world = job_size()

    def joined(rank: Any) -> None:
        set_rank(rank)
        group = getattr(sys.modules[_C10D]._world, "default_pg", None)
        if group is not None and rank >= 0:
            _note(folder, group.size(), rank, world)
            if rank == 0 and group.size() < world:
                os.write(2, f"ddpjob: WARNING: {apart(group.size(), world)}\n".encode())

    c10d._set_global_rank = joined
    _watched.append(folder)


def note_training_alone(folder: str) -> None:
    """Note a group of one for a process that has made an optimizer, and has never sent anything to another process."""
    optimizers: Any = sys.modules.get("torch.optim.optimizer")
    if optimizers is None or folder not in _watched or (os.path.exists(_file(folder)) and not _is_idle()):
        return
    classes = [optimizers.Optimizer]
    for each in classes:
        classes += each.__subclasses__()
    # torch marks the class of the first optimizer that is made of it.
    if any(hasattr(each.step, "hooked") for each in classes):
        _note(folder, 1, 0, job_size())


def _is_idle() -> bool:
    """Whether this process has groups, and none of them was ever used; gloo alone counts whatever is sent."""
    groups = list(getattr(getattr(sys.modules.get(_C10D), "_world", None), "pg_map", ()))
    try:
        backends = [group._get_backend(device) for group in groups for device in group._device_types]
        return bool(backends) and not any(
            backend.name() != "gloo" or backend._get_sequence_number_for_group() for backend in backends
        )
    except Exception:  # noqa: BLE001 -- torch's inside, which is another one in each version
        return False


def job_size() -> int:
    """How many processes the job has, as far as this process knows."""
    world = os.environ.get("WORLD_SIZE") or os.environ.get("OMPI_COMM_WORLD_SIZE") or "1"
    return int(world) if world.isdecimal() else 1


def apart(size: int, world: int) -> str:
    """What is to be said of a process group that is smaller than its job."""
    return (
        f"a process group of {size} in a job of {world} processes: those outside of it do not take part, or train "
        "models of their own"
    )


def _note(folder: str, *of_group: int) -> None:
    # The last group of a process counts.
    with open(_file(folder), "w") as file:
        file.write(" ".join(map(str, of_group)))


def _file(folder: str) -> str:
    return os.path.join(folder, f"{GROUP}{os.getpid()}")


def follow_spawned(libuv: str, folder: str) -> None:
    """Let all of this be done in the processes that this one spawns, too."""
    from multiprocessing import spawn

    text = globals().get("TEXT") or __loader__.get_source(__name__)  # type: ignore[name-defined]
    prepare = spawn.get_preparation_data

    def prepared(name: str) -> dict[str, Any]:
        # What is read first by a process that is spawned: it ignores names that it does not know.
        return {**prepare(name), "ddpjob": _Spawned(text, libuv, folder)}

    spawn.get_preparation_data = prepared


class _Spawned:
    def __init__(self, text: str, libuv: str, folder: str) -> None:
        self._text, self._call = text, f"\nsys.meta_path.insert(0, AtImport({libuv!r}, {folder!r}))\n"

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (self._text + self._call, {"__name__": "ddpjob_torch", "TEXT": self._text})
