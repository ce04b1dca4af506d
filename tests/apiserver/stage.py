"""A namespace with an operator process in it and a stand-in for the kubelet, in front of a real API server."""

import asyncio
import contextlib
import multiprocessing
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from ddpjob_core.api.errors import ApiError, NotFound
from ddpjob_core.api.resources import CLAIMS, CONFIG_MAPS, EVENTS, JOBS, PODS, SERVICES, Resource
from ddpjob_core.engine.protocols import Json
from ddpjob_operator.connection import Connection, connect
from ddpjob_operator.kube import KubeClient
from ddpjob_operator.watch_lines import WatchEvent
from tests.apiserver.controlplane import ControlPlane
from tests.apiserver.faulty_proxy import FaultyProxy
from tests.apiserver.forked import LOADED, operate

NODE = "node-of-the-test"
PATIENCE = 60.0


async def until(what: str, condition: Callable[[], Awaitable[object] | object], patience: float = PATIENCE) -> None:
    """Poll until the condition is true; fail with `what` and its last value after a deadline.

    What takes long is looked at less and less often: each look takes time from what it waits for.
    """
    deadline = time.monotonic() + patience
    pause = 0.02
    while True:
        value = condition()
        if isinstance(value, Awaitable):
            value = await value
        if value:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"not reached within {patience:.0f} s: {what}; last seen: {value!r}")
        await asyncio.sleep(pause)
        pause = min(1.3 * pause, 0.2)


class Admin:
    """The cluster as its administrator sees it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.kube = KubeClient(connection, count=lambda *_: None)

    async def all(self, resource: Resource, namespace: str) -> list[Json]:
        """All objects of a namespace."""
        return [item async for page in self.kube.list_pages(resource, namespace, keep=_whole) for item in page.items]

    async def bind(self, namespace: str, pod: str) -> None:
        """Put a pod on the node."""
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
        await self.ask("POST", PODS.path(namespace, pod, "binding"), body)

    async def change(self, resource: Resource, namespace: str, name: str, edit: Callable[[Json], object]) -> Json:
        """Read, edit and write an object, again and again until nobody comes in between; the object as it then is."""
        for _ in range(50):
            raw = await self.kube.get(resource, namespace, name)
            edit(raw)
            answer = await self.ask("PUT", resource.path(namespace, name), raw)
            if answer.get("kind") != "Status":
                return answer
        raise AssertionError(f"{name} could not be changed")

    async def ask(self, method: str, path: str, body: Json | None) -> Json:
        """Send any request; the answer, which is a Status where the API server refuses it."""
        limits = aiohttp.ClientTimeout(total=30)
        answer = await self.connection.request(method, path, body, limits=limits)
        raw: Json = await answer.json()
        return raw


def _whole(raw: Json) -> Json:
    return raw


def container(state: Json) -> Json:
    return {
        "name": "trainer",
        "image": "i",
        "imageID": "",
        "ready": "running" in state,
        "restartCount": 0,
        "state": state,
    }


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Kubelet:
    """Plays the kubelet and the scheduler for a namespace: pods run, end as the test says, and stop when deleted.

    With `place_pods` off the pods wait for a real scheduler.
    """

    admin: Admin
    namespace: str
    address: str = "127.0.0.1"
    run_pods: bool = True
    place_pods: bool = True
    exits: dict[str, int] = field(default_factory=dict)
    termination_messages: dict[str, str] = field(default_factory=dict)
    _pods: dict[str, Json] = field(default_factory=dict)

    async def run(self) -> None:
        """Play until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch())
            tasks.create_task(self._play())

    async def _play(self) -> None:
        while True:
            for pod in list(self._pods.values()):
                # It may have been changed or deleted since: the next round sees.
                with contextlib.suppress(ApiError):
                    await self._care_for(pod)
            await asyncio.sleep(0.05)

    async def _watch(self) -> None:
        """Know the pods as they are. A list for each look would take more of the API server than all that is tested."""
        kube = self.admin.kube
        while True:
            # The API server may be away, or be another one with an older state.
            with contextlib.suppress(ApiError):
                since = ""
                found: dict[str, Json] = {}
                async for page in kube.list_pages(PODS, self.namespace, keep=_whole):
                    found.update({pod["metadata"]["name"]: pod for pod in page.items})
                    since = page.resource_version
                self._pods = found
                async for event in kube.watch(PODS, self.namespace, since=since, seconds=600, silence=600):
                    self._see(event)
            await asyncio.sleep(0.05)

    def _see(self, event: WatchEvent) -> None:
        if event.type == "DELETED":
            self._pods.pop(event.object["metadata"]["name"], None)
        elif event.type in ("ADDED", "MODIFIED"):
            self._pods[event.object["metadata"]["name"]] = event.object

    async def _care_for(self, pod: Json) -> None:
        metadata, status = pod["metadata"], pod.get("status", {})
        name = metadata["name"]
        if metadata.get("deletionTimestamp"):
            await self.admin.kube.delete(PODS, self.namespace, name, uid=metadata["uid"], grace_seconds=0)
            return
        if not self.run_pods:
            return
        if not pod["spec"].get("nodeName"):
            if not self.place_pods:
                return
            await self.admin.bind(self.namespace, name)
            return
        states = status.get("containerStatuses") or [{}]
        state = states[0].get("state", {})
        if name in self.exits and "terminated" not in state:
            code = self.exits[name]
            await self._set(pod, "Failed" if code else "Succeeded", self._terminated(name, code))
        elif name not in self.exits and not state:
            await self._set(pod, "Running", {"running": {"startedAt": now()}})

    def _terminated(self, name: str, code: int) -> Json:
        return {
            "terminated": {
                "exitCode": code,
                "reason": "Error" if code else "Completed",
                "message": self.termination_messages.get(name, ""),
                "startedAt": now(),
                "finishedAt": now(),
            }
        }

    async def _set(self, pod: Json, phase: str, state: Json) -> None:
        ready = "True" if phase == "Running" else "False"
        status = {
            "phase": phase,
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": ready}],
            "containerStatuses": [container(state)],
        }
        await self.admin.kube.replace_status(PODS, {**pod, "status": status})


class OperatorProcess:
    """`python -m ddpjob_operator` as a process of its own."""

    def __init__(self, kubeconfig: Path, log: Path, *arguments: str, code: Path | None = None) -> None:
        """Args:
        kubeconfig: of its service account.
        log: for what it says.
        arguments: of the operator.
        code: folder with the packages of another version.
        """
        self._kubeconfig = kubeconfig
        self._log = log
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None
        self._said_before = 0
        # Before the packages that are installed, and those of the current folder.
        self._variables = {"PYTHONPATH": str(code), "PYTHONSAFEPATH": "1"} if code is not None else {}

    async def start(self) -> None:
        """Start it; it need not be ready."""
        self._said_before = len(self.log())
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "ddpjob_operator",
                "--port=0",
                *self._arguments,
                env={**os.environ, **self._variables, "KUBECONFIG": str(self._kubeconfig)},
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """End it without a chance to do anything more."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def end(self) -> None:
        """Kill it where it was started, and wait for its end."""
        if self._process is not None:
            self.kill()
            await self.gone()

    async def gone(self) -> int:
        """Wait for its end; its exit code."""
        assert self._process is not None
        return await self._process.wait()

    async def stop(self) -> int:
        """End it as the kubelet does; its exit code."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        return await self._process.wait()

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    def port(self) -> int | None:
        """Where it serves /healthz and /metrics, once it has said so."""
        found = re.search(r"on port (\d+)", self.log()[self._said_before :])
        return int(found[1]) if found else None

    def log(self) -> str:
        """All that it has said."""
        return self._log.read_text() if self._log.exists() else ""

    async def fetch(self, path: str) -> tuple[int, str]:
        """Status and text of one of its endpoints."""
        await until("the operator serves", self.port)
        port = self.port()
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
            return response.status, await response.text()

    async def metric(self, name: str, **labels: str) -> float | None:
        """The value of one of its metrics, which has at most one series with these labels; None where it has none."""
        families = text_string_to_metric_families((await self.fetch("/metrics"))[1])
        found = [
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == f"ddpjob_operator_{name}" and labels.items() <= sample.labels.items()
        ]
        assert len(found) <= 1, name
        return found[0] if found else None


class ForkedOperator(OperatorProcess):
    """The same, forked from a process that has loaded it: loading is most of what the start of an operator costs."""

    _forked: ForkServerProcess | None = None
    pod: str = ""
    """The pod that it runs in, "" for one of its own each time it is started."""

    async def start(self) -> None:
        """Start it; it need not be ready."""
        self._said_before = len(self.log())
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(LOADED)
        process = context.Process(
            target=operate,
            args=(self._log, ["ddpjob_operator", "--port=0", *self._arguments], str(self._kubeconfig), self.pod),
            daemon=True,
        )
        process.start()
        self._forked = process

    def kill(self) -> None:
        """End it without a chance to do anything more."""
        self._own().kill()

    async def end(self) -> None:
        """Kill it where it was started, and wait for its end."""
        if self._forked is not None:
            self.kill()
            await self.gone()

    async def gone(self) -> int:
        """Wait for its end; its exit code."""
        process = self._own()
        await asyncio.to_thread(process.join)
        assert process.exitcode is not None
        return process.exitcode

    async def stop(self) -> int:
        """End it as the kubelet does; its exit code."""
        self._own().terminate()
        return await self.gone()

    @property
    def pid(self) -> int:
        """Its process id."""
        found = self._own().pid
        assert found is not None
        return found

    def _own(self) -> ForkServerProcess:
        assert self._forked is not None
        return self._forked


@dataclass
class Stage:
    """A namespace with an operator of its own, behind a proxy that can break things."""

    admin: Admin
    namespace: str
    proxy: FaultyProxy
    operator: OperatorProcess
    kubelet: Kubelet

    async def create(self, name: str, **spec: Any) -> Json:
        """Create a DDPJob."""
        raw = {
            "apiVersion": "ddpjob.dev/v1alpha1",
            "kind": "DDPJob",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"nodes": 4, "procsPerNode": 1, "trainer": {"image": "i", "script": "train.py"}, **spec},
        }
        return await self.admin.kube.create(JOBS, raw)

    async def job(self, name: str) -> Json:
        """The DDPJob as it is now."""
        return await self.admin.kube.get(JOBS, self.namespace, name)

    async def exists(self, name: str) -> bool:
        """Whether the DDPJob is there."""
        try:
            await self.job(name)
        except NotFound:
            return False
        return True

    async def status(self, name: str) -> Json:
        """Its status."""
        found = (await self.job(name)).get("status")
        return found if isinstance(found, dict) else {}

    async def pods(self, name: str) -> list[Json]:
        """The pods that carry its name, oldest attempt first."""
        pods = await self.admin.all(PODS, self.namespace)
        mine = [pod for pod in pods if pod["metadata"].get("labels", {}).get("ddpjob.dev/job") == name]
        return sorted(mine, key=lambda pod: str(pod["metadata"]["name"]))

    async def children(self, name: str) -> list[str]:
        """Kind and name of all that the job owns, or has left behind."""
        return [
            f"{resource.plural}/{raw['metadata']['name']}"
            for resource in (PODS, SERVICES, CONFIG_MAPS, CLAIMS)
            for raw in await self.admin.all(resource, self.namespace)
            if raw["metadata"].get("labels", {}).get("ddpjob.dev/job") == name
        ]

    async def events(self, name: str) -> list[str]:
        """Reasons of the events on the job, in order."""
        events = await self.admin.all(EVENTS, self.namespace)
        return [event["reason"] for event in events if event["involvedObject"]["name"] == name]

    async def set_spec(self, name: str, **fields: Any) -> None:
        """Change the job's spec as a user does."""
        await self.admin.change(JOBS, self.namespace, name, lambda raw: raw["spec"].update(fields))

    async def delete(self, name: str) -> None:
        """Delete the job as a user does, and wait until the garbage collector has taken all it owned."""
        with contextlib.suppress(NotFound):
            job = await self.job(name)
            await self.admin.kube.delete(JOBS, self.namespace, name, uid=job["metadata"]["uid"])
        await until(f"{name} leaves nothing behind", lambda: self._nothing_left(name))

    async def _nothing_left(self, name: str) -> bool:
        return not await self.children(name)


@contextlib.asynccontextmanager
async def set_stage(plane: ControlPlane, folder: Path, *arguments: str) -> AsyncIterator[Stage]:
    """A stage whose operator is not started yet; what it began is ended with it."""
    namespace = plane.new_namespace()
    admin = Admin(await connect(str(plane.admin_kubeconfig)))
    upstream = await connect(str(plane.operator_kubeconfig))
    kubelet = Kubelet(admin, namespace)
    async with contextlib.AsyncExitStack() as ends:
        ends.push_async_callback(admin.connection.close)
        ends.push_async_callback(upstream.close)
        proxy = await ends.enter_async_context(FaultyProxy(upstream))
        kubeconfig = proxy.write_kubeconfig(folder / f"{namespace}.json")
        operator = ForkedOperator(kubeconfig, folder / f"{namespace}.log", f"--namespace={namespace}", *arguments)
        # As a container that is started again in its pod, which need not wait until its Lease expires.
        operator.pod = "operator-0"
        ends.push_async_callback(operator.end)
        playing = asyncio.create_task(kubelet.run())
        ends.callback(playing.cancel)
        yield Stage(admin, namespace, proxy, operator, kubelet)


async def phase_is(stage: Stage, name: str, phase: str) -> bool:
    """Whether the job is in this phase."""
    return str((await stage.status(name)).get("phase")) == phase


async def pods_created(stage: Stage, name: str, attempt: int = 0) -> bool:
    """Whether the job's status says that all pods of an attempt were created."""
    status = await stage.status(name)
    return bool(status.get("podsCreated") and status.get("attempt") == attempt)


async def all_run(stage: Stage, name: str, count: int = 4) -> bool:
    """Whether so many of the job's pods run."""
    phases = [str(pod["status"].get("phase")) for pod in await stage.pods(name)]
    return phases.count("Running") == count
