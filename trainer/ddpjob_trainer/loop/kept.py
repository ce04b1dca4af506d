"""What a session saves and resumes, by name."""

from collections.abc import Mapping
from typing import Any

from ddpjob_trainer.checkpointing.snapshot import Stateful
from ddpjob_trainer.process.environment import MisuseError


class Kept:
    """States by name; itself a state, whose names must be those of the checkpoint."""

    def __init__(self, states: Mapping[str, Stateful] | None = None) -> None:
        """Args:
        states: by name.
        """
        self._states = dict(states or {})

    def add(self, name: str, state: Stateful) -> None:
        """Keep a state.

        Raises:
            MisuseError: the name is taken, or it has no state that can be saved.
        """
        if name in self._states:
            raise MisuseError(f"the session already keeps something as {name!r}: choose another name")
        for method in ("state_dict", "load_state_dict"):
            if not callable(getattr(state, method, None)):
                raise MisuseError(f"{name} is a {type(state).__name__} without {method}: it cannot be saved")
        self._states[name] = state

    def has(self, state: Stateful) -> bool:
        """Whether it is kept, under any name."""
        return any(state is each for each in self._states.values())

    def without(self, *states: Stateful) -> "Kept":
        """All other states."""
        rest = {name: each for name, each in self._states.items() if not any(each is other for other in states)}
        return Kept(rest)

    def state_dict(self) -> dict[str, Any]:
        """All states by name."""
        return {name: state.state_dict() for name, state in self._states.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore all states.

        Raises:
            ValueError: the names are others.
        """
        missing, unknown = self._states.keys() - state_dict.keys(), state_dict.keys() - self._states.keys()
        if missing or unknown:
            wrong = [f"it has no {name}" for name in sorted(missing)]
            wrong += [f"it has {name}, which this program does not keep" for name in sorted(unknown)]
            raise ValueError("; ".join(wrong))
        for name, state in self._states.items():
            state.load_state_dict(state_dict[name])
