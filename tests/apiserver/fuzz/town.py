"""An operator that serves namespaces in which everything is fuzzed, and one in which healthy jobs run."""

import asyncio
import re
import ssl
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Final, TypeVar

import aiohttp
import psutil

from ddpjob_core.api.resources import CLAIMS, CONFIG_MAPS, JOBS, PODS, SECRETS, SERVICES, Resource
from ddpjob_operator.connection import connect
from ddpjob_operator.encoding import decode
from tests.apiserver.controlplane import ControlPlane, Json
from tests.apiserver.fuzz.mutants import text_of
from tests.apiserver.stage import Admin, Kubelet, OperatorProcess, until

AT_ONCE: Final = 6
"""Requests of one kind of fuzz."""
_LOOK_EVERY: Final = 0.5
_CHILDREN: Final = (PODS, SERVICES, CONFIG_MAPS, SECRETS)
_FAULTS: Final = (" ERROR ", "Traceback", "unexpectedly", "never retrieved", "never awaited")
KINDS: Final = ("jobs", "pods", "messages", "answers")

T = TypeVar("T")


class Wire:
    """Requests of an administrator whose bodies no JSON library would write."""

    def __init__(self, plane: ControlPlane) -> None:
        context = ssl.create_default_context(cafile=str(plane.admin.ca))
        self._session = aiohttp.ClientSession(
            plane.url,
            connector=aiohttp.TCPConnector(ssl=context),
            headers={"Authorization": f"Bearer {plane.admin.token}", "Content-Type": "application/json"},
            timeout=aiohttp.ClientTimeout(total=60),
        )

    async def send(self, method: str, path: str, body: bytes | None = None) -> tuple[int, Json]:
        """The code and the JSON of the answer."""
        while True:
            async with self._session.request(method, path, data=body) as answer:
                if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
                    await asyncio.sleep(0.1)
                    continue
                # What is nested too deep for any JSON library is left out.
                raw: Json = decode(await answer.read())
                return answer.status, raw

    async def close(self) -> None:
        await self._session.close()


@dataclass
class Town:
    """What the tests share. `given` are the seeds that each object was given, by its namespace and name."""

    plane: ControlPlane
    wire: Wire
    admin: Admin
    operator: OperatorProcess
    kubelet: Kubelet
    namespaces: dict[str, str]
    elsewhere: str
    given: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    counts: Counter[str] = field(default_factory=Counter)
    memory: list[float] = field(default_factory=list)

    def gave(self, kind: str, name: str, seed: int) -> None:
        """Keep what an object was given."""
        self.given[f"{self.namespaces[kind]}/{name}"].append(seed)

    def count(self, kind: str, code: int, answer: Json) -> bool:
        """Count a write; whether the API server took it."""
        taken = code < HTTPStatus.BAD_REQUEST
        self.counts[f"{kind} {'taken' if taken else 'refused'}"] += 1
        # More than gRPC or etcd takes is such an error, too.
        said = str(answer.get("message"))
        too_large = "larger than max" in said or "request is too large" in said
        refused = code < HTTPStatus.INTERNAL_SERVER_ERROR or too_large
        assert refused, f"the API server itself failed: {answer}"
        return taken

    async def write(self, method: str, resource: Resource, kind: str, raw: Json, part: str = "") -> tuple[bool, Json]:
        """Send an object into the namespace of its kind, whatever version of it is there; whether it was taken."""
        namespace, name = self.namespaces[kind], raw["metadata"]["name"]
        path = resource.path(namespace) if method == "POST" else resource.path(namespace, name, part)
        raw = {**raw, "metadata": {**raw["metadata"], "resourceVersion": None}} if method == "PUT" else raw
        # A warning for each unknown field would be more headers than the test's own client takes.
        code, answer = await self.wire.send(method, f"{path}?fieldValidation=Ignore", text_of(raw))
        return self.count(f"{kind} {method}{f' {part}' if part else ''}", code, answer), answer

    async def rewrite(self, kind: str, name: str, edit: Callable[[Json], Json], part: str = "") -> None:
        """Change a job, even if others do at the same time; nothing where it is gone."""
        path = JOBS.path(self.namespaces[kind], name)
        code = HTTPStatus.CONFLICT
        while code == HTTPStatus.CONFLICT:
            found, raw = await self.wire.send("GET", path)
            if found != HTTPStatus.OK:
                return
            try:
                body = text_of(edit(raw))
            except RecursionError:
                # Nothing here can write it back.
                return
            sent, raw = await self.wire.send("PUT", f"{path}{f'/{part}' if part else ''}?fieldValidation=Ignore", body)
            code = HTTPStatus(sent)
        self.count(f"{kind} PUT {part}", code, raw)

    async def all(self, resource: Resource, kind: str) -> list[Json]:
        """All objects in the namespace of a kind."""
        return await self.admin.all(resource, self.namespaces[kind])

    async def rests(self) -> None:
        """Wait until no job waits for the operator."""

        async with asyncio.timeout(120):
            # Each look takes time from the operator.
            while await self.operator.metric("queue_depth") != 0:  # noqa: ASYNC110 it is another process
                await asyncio.sleep(_LOOK_EVERY)

    async def clear(self, kind: str) -> None:
        """Remove all jobs, and what belongs to them: where there is a garbage collector, it is not fast enough."""
        namespace = self.namespaces[kind]
        await self.wire.send("DELETE", JOBS.path(namespace))
        for resource in _CHILDREN:
            await self.wire.send("DELETE", f"{resource.path(namespace)}?gracePeriodSeconds=0")
        await self.wire.send("DELETE", CLAIMS.path(namespace))
        for claim in await self.all(CLAIMS, kind):
            claim["metadata"]["finalizers"] = []
            await self.wire.send("PUT", CLAIMS.path(namespace, claim["metadata"]["name"]), text_of(claim))

        async def is_empty() -> bool:
            if await self.all(JOBS, kind):
                return False
            # The operator may have created one before it saw that the job is deleted.
            await self.wire.send("DELETE", f"{PODS.path(namespace)}?gracePeriodSeconds=0")
            return not await self.all(PODS, kind)

        await until(f"{namespace} is empty", is_empty)

    async def check(self) -> None:
        """The operator runs, and nothing has surprised it."""
        status, _ = await self.operator.fetch("/healthz")
        assert status == HTTPStatus.OK, self._report()
        assert await self.operator.metric("reconcile_errors_total") == 0, self._report()
        assert not any(fault in self.operator.log() for fault in _FAULTS), self._report()

    def _report(self) -> str:
        """Where it failed, and what repeats it."""
        lines = self.operator.log().splitlines()
        first = next((n for n, line in enumerate(lines) if any(fault in line for fault in _FAULTS)), len(lines) - 60)
        said = "\n".join(line[:400] for line in lines[max(0, first - 2) : first + 60])
        return f"{said}\n{self.repeats(said)}"

    def repeats(self, text: str) -> str:
        """What repeats alone what the objects that a text names were given."""
        kinds = {namespace: kind for kind, namespace in self.namespaces.items()}
        named = [
            (kinds[key.split("/")[0]], seeds) for key, seeds in self.given.items() if re.search(rf"{key}(?!\d)", text)
        ]
        return "\n".join(f"DDPJOB_FUZZ={kind}:{','.join(map(str, seeds))}" for kind, seeds in named)

    async def watch_memory(self) -> None:
        """Measure the operator's memory until cancelled."""
        while True:
            self.memory.append(psutil.Process(self.operator.pid).memory_info().rss / 2**20)
            await asyncio.sleep(0.25)


@asynccontextmanager
async def town_of(plane: ControlPlane, folder: Path, operator: type[OperatorProcess]) -> AsyncIterator[Town]:
    """A town whose operator leads and serves the namespaces.

    Args:
        plane: the API server.
        folder: for the operator's log.
        operator: how it is started.
    """
    namespaces = {kind: plane.new_namespace() for kind in (*KINDS, "healthy")}
    served = [f"--namespace={namespace}" for namespace in namespaces.values()]
    process = operator(plane.operator_kubeconfig, folder / "operator.log", "--poll-interval=0.25", *served)
    async with AsyncExitStack() as ends:
        admin = Admin(await connect(str(plane.admin_kubeconfig)))
        ends.push_async_callback(admin.connection.close)
        wire = Wire(plane)
        ends.push_async_callback(wire.close)
        ends.push_async_callback(process.end)
        kubelet = Kubelet(admin, namespaces["healthy"])
        town = Town(plane, wire, admin, process, kubelet, namespaces, plane.new_namespace())
        await process.start()

        async def leads() -> bool:
            return await process.metric("leading") == 1

        await until("the operator leads", leads)
        for work in (kubelet.run(), town.watch_memory()):
            task = asyncio.create_task(work)
            ends.callback(task.cancel)
        yield town


async def gathered(work: Iterable[Awaitable[T]], at_once: int = AT_ONCE) -> list[T]:
    """The results of all, of which so many run at a time."""
    slots = asyncio.Semaphore(at_once)

    async def one(each: Awaitable[T]) -> T:
        async with slots:
            return await each

    return await asyncio.gather(*(one(each) for each in work))
