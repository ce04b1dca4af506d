"""The state of every random number generator that a training step may draw from."""

import base64
import json
import random
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

CAPACITY: Final = 32 * 1024
"""Upper limit of the bytes of a captured state: PyTorch, Python and NumPy have about 14 KB as text."""


def seed_everything(seed: int) -> None:
    """Seed torch (all devices), Python and NumPy.

    Args:
        seed: the same on all ranks gives equal models; a different one per rank makes, for example, dropout differ.
    """
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 the generator that user code draws from by default


def seed_of(*numbers: int) -> int:
    """A seed derived from these numbers: the same in every process, and different for different numbers."""
    return hash(numbers) % 2**63


def seed_step(seed: int, rank: int, step: int) -> None:
    """Seed what a step draws from, so that it draws the same whenever it is made again, and by whichever process.

    Args:
        seed: of the training.
        rank: of this process.
        step: the last one before it.
    """
    own = seed_of(seed, rank, step)
    # Not torch.manual_seed, which notes its caller's whole stack where there is no GPU.
    torch.default_generator.manual_seed(own)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed(own)
    random.seed(own)
    try:
        # What np.random.seed does, after it has looked at what it may be asked for: this is done in every step.
        np.random.mtrand._rand.seed(own % 2**32)  # noqa: SLF001 see seed_everything
    except TypeError:
        # The program has given NumPy another kind of generator.
        np.random.seed(own % 2**32)  # noqa: NPY002 likewise


def capture() -> bytes:
    """The state of all generators of this process."""
    version, numbers, gauss = random.getstate()
    state: dict[str, Any] = {
        "torch": _text(torch.get_rng_state().numpy()),
        "cuda": _text(torch.cuda.get_rng_state().numpy()) if torch.cuda.is_available() else None,
        "python": [version, _text(np.array(numbers, dtype=np.uint32)), gauss],
        "numpy": _numpy_state(),
    }
    return json.dumps(state).encode()


def restore(captured: bytes) -> None:
    """Put all generators of this process into a captured state.

    Raises:
        ValueError: the bytes are not such a state.
    """
    state = json.loads(captured)
    torch.set_rng_state(_tensor(state["torch"]))
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(_tensor(state["cuda"]))
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(_numbers(numbers).tolist()), gauss))
    saved = state["numpy"]
    saved["state"]["key"] = _numbers(saved["state"]["key"])
    np.random.set_state(saved)  # noqa: NPY002 see seed_everything


def _numpy_state() -> dict[str, Any]:
    state: dict[str, Any] = dict(np.random.get_state(legacy=False))  # noqa: NPY002 see seed_everything
    return {**state, "state": {**state["state"], "key": _text(state["state"]["key"])}}


def _text(state: NDArray[Any]) -> str:
    # A list of numbers would make the training wait ten times as long.
    return base64.b64encode(state.tobytes()).decode()


def _tensor(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)


def _numbers(saved: str | list[int]) -> NDArray[np.uint32]:
    # Checkpoints of older versions have lists.
    if isinstance(saved, str):
        return np.frombuffer(base64.b64decode(saved), dtype=np.uint32)
    return np.asarray(saved, dtype=np.uint32)


class Stream:
    """Random numbers apart from those of the training: a body within `with` draws from them, and goes on with them."""

    def __init__(self, seed: int) -> None:
        """Args:
        seed: of the numbers.
        """
        self._seed: int | None = seed
        self._own: tuple[Any, ...] = ()
        self._trainings: tuple[Any, ...] = ()

    def __enter__(self) -> None:
        self._trainings = generators()
        if self._seed is None:
            set_generators(self._own)
        else:
            seed_everything(self._seed)
            self._seed = None

    def __exit__(self, *_: object) -> None:
        self._own = generators()
        set_generators(self._trainings)


def generators() -> tuple[Any, ...]:
    """The state of all generators of this process, to be set again in this process."""
    cuda = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
    return torch.get_rng_state(), random.getstate(), np.random.get_state(), cuda  # noqa: NPY002 see seed_everything


def set_generators(states: tuple[Any, ...]) -> None:
    """Put all generators of this process into a state of `generators`."""
    cpu, python, numpy, cuda = states
    torch.set_rng_state(cpu)
    random.setstate(python)
    np.random.set_state(numpy)  # noqa: NPY002 see seed_everything
    if cuda is not None:
        torch.cuda.set_rng_state(cuda)
