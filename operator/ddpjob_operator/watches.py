"""All watches of an operator: of each namespace that it serves those of jobs and their objects, and one of Leases."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ddpjob_operator.health import Check, watch_is_answered, watch_moves


class Watch(Protocol):
    """A LIST and WATCH that goes on whatever fails."""

    @property
    def synced(self) -> asyncio.Event:
        """Set once everything has been listed."""

    @property
    def silent_for(self) -> float:
        """Seconds since the API server last answered or sent an event."""

    @property
    def idle_for(self) -> float:
        """Seconds since it last did anything, such as another try to reach the API server."""

    @property
    def refused(self) -> str | None:
        """Why the API server does not show these objects, None where it does."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A watch, and what of: a resource in a namespace, None for all."""

    resource: str
    namespace: str | None
    watch: Watch


class Watches:
    """What the watches together show."""

    def __init__(self, served: Mapping[str | None, Sequence[Watched]], leases: Watched, dead_after: float) -> None:
        """Args:
        served: the watches of each namespace that is served, or of all under None.
        leases: that of Leases.
        dead_after: seconds after which a watch that does nothing, or hears nothing, is reported.
        """
        self._served = served
        self._leases = leases
        self._dead_after = dead_after
        self._listed: set[str | None] = set()
        self._any_listed = asyncio.Event()

    async def follow(self, listed: Callable[[str | None], None]) -> None:
        """Call `listed` for each namespace once all its watches have listed their objects; goes on until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for namespace in self._served:
                tasks.create_task(self._follow(namespace, listed))
        await asyncio.Event().wait()

    async def _follow(self, namespace: str | None, listed: Callable[[str | None], None]) -> None:
        for each in self._served[namespace]:
            await each.watch.synced.wait()
        self._listed.add(namespace)
        self._any_listed.set()
        listed(namespace)

    async def useful(self) -> None:
        """Wait until there is a namespace whose jobs can be looked at, and it is known who leads."""
        await self._leases.watch.synced.wait()
        await self._any_listed.wait()

    def have_listed(self, namespace: str) -> bool:
        """Whether all of this namespace has been listed: a job is not judged by pods that are not known yet."""
        return namespace in self._listed or None in self._listed

    @property
    def alive(self) -> tuple[Check, ...]:
        """Whether each keeps trying."""
        return tuple(
            watch_moves(self._name(each), partial(_idleness, each.watch), self._dead_after) for each in self._all
        )

    def problems(self) -> list[str]:
        """Why this process could not lead, if it cannot.

        A namespace that the API server does not show is none, as long as it shows another one.
        """
        hidden = self.hidden()
        ignored = hidden if len(hidden) < len(self._served) else {}
        found = []
        for each in self._all:
            if each is not self._leases and each.namespace in ignored:
                continue
            if not each.watch.synced.is_set():
                found.append(f"{self._name(each)} have not been listed yet{_because(each.watch.refused)}")
            silent = watch_is_answered(self._name(each), partial(_silence, each.watch), self._dead_after)()
            found += [silent] if silent is not None else []
        return found

    def remarks(self) -> list[str]:
        """Which namespaces are not served, and why."""
        return [f"namespace {name} is not served: {why}" for name, why in self.hidden().items() if name is not None]

    def hidden(self) -> dict[str | None, str]:
        """The namespaces that the API server does not show, or not wholly, and why."""
        found = {}
        for namespace, watches in self._served.items():
            reasons = [each.watch.refused for each in watches if each.watch.refused is not None]
            if reasons:
                found[namespace] = reasons[0]
        return found

    def shown(self) -> dict[str, bool]:
        """Whether each namespace that was named is served."""
        hidden = self.hidden()
        return {each: each in self._listed and each not in hidden for each in self._served if each is not None}

    @property
    def resources(self) -> tuple[str, ...]:
        """What is watched."""
        return tuple(dict.fromkeys(each.resource for each in self._all))

    def age(self, resource: str) -> float:
        """For how many seconds the watch of a resource has been silent, of several the longest.

        Those of namespaces that the API server does not show count only where there are no others.
        """
        hidden = self.hidden()
        watches = [each for each in self._all if each.resource == resource]
        heard = [each for each in watches if each.namespace not in hidden] or watches
        return max(each.watch.silent_for for each in heard)

    def _name(self, each: Watched) -> str:
        # With one namespace it needs no saying.
        several = len(self._served) > 1 and each.namespace is not None
        return f"{each.resource} in {each.namespace}" if several else each.resource

    @property
    def _all(self) -> Iterable[Watched]:
        return (*(each for watches in self._served.values() for each in watches), self._leases)


def _silence(watch: Watch) -> float:
    return watch.silent_for


def _idleness(watch: Watch) -> float:
    return watch.idle_for


def _because(why: str | None) -> str:
    return "" if why is None else f": {why}"
