"""Jobs of an earlier version, made and stored by its own operator, under this one and back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from ddpjob_core.api.resources import CLAIMS, CONFIG_MAPS, JOBS, PODS, SECRETS, SERVICES, Resource
from ddpjob_operator.connection import connect
from tests.apiserver.chart.helm import CHART, Helm
from tests.apiserver.controlplane import NAMESPACE, ROOT, ControlPlane, Json
from tests.apiserver.faulty_proxy import FaultyProxy
from tests.apiserver.stage import Admin, Kubelet, OperatorProcess, Stage, phase_is, until
from tests.earlier import unpack_earlier

pytestmark = pytest.mark.timeout(300)

RESTART: Final = {"maxRestarts": 3, "backoffSeconds": 0}
ENDED: Final = {"restart": {"maxRestarts": 0}, "nodes": 1}
WRONG: Final = {"spec": {"containers": [{"name": "trainer", "env": [{"name": "RANK", "value": "0"}]}]}}
JOBS_OF_ALL_KINDS: Final[dict[str, tuple[str, Json]]] = {
    "digits": ("Running", {"nodes": 2, "restart": RESTART, "checkpoint": {"size": "1Gi"}}),
    "elastic": ("Running", {"nodes": 2, "elastic": {"minNodes": 1, "maxNodes": 3}}),
    "hpc": ("Running", {"nodes": 2, "launcher": "mpirun", "rendezvous": {"backend": "static"}}),
    "again": ("Running", {"nodes": 2, "restart": RESTART}),
    "rests": ("Suspended", {"nodes": 2, "suspend": True}),
    "done": ("Succeeded", ENDED),
    "failed": ("Failed", ENDED),
    "wrong": ("Failed", {"nodes": 1, "template": WRONG}),
}
"""Name, phase that it reaches, and spec."""
SPEC_OF_ONE_VERSION: Final = {"spec.restart.spares", "spec.slowRank", "spec.elastic.rejoinSeconds"}
"""Fields that the earlier definition does not have; with this one, the API server adds their defaults when it reads."""
STATUS_OF_ONE_VERSION: Final = {"status.selector", "status.podSecurity", "status.leaderEpoch"}
"""What each of the two versions writes in its own way: which pods an autoscaler counts, how pods are completed, and who
leads."""
UNTOUCHED: Final = (PODS, SERVICES, CONFIG_MAPS, SECRETS, CLAIMS)


@dataclass
class Version:
    """An operator of one of the two versions, and its way to the API server."""

    operator: OperatorProcess
    proxy: FaultyProxy

    async def leads(self) -> bool:
        return await self.operator.metric("leading") == 1

    async def stands_by(self) -> bool:
        return (await self.operator.fetch("/readyz"))[0] == 200 and not await self.leads()

    async def has_looked_at_everything(self) -> bool:
        return await self.leads() and await self.operator.metric("queue_depth") == 0


@dataclass
class Town:
    """A cluster with the jobs of a namespace, and both versions of everything."""

    helm: Helm
    stage: Stage
    earlier: Version
    this: Version

    async def run_helm(self, *arguments: str) -> str:
        """In a thread: the proxies go on."""
        return await asyncio.to_thread(self.helm.run, *arguments, "--namespace", NAMESPACE)

    async def jobs(self) -> dict[str, Json]:
        return {job["metadata"]["name"]: job for job in await self.stage.admin.all(JOBS, self.stage.namespace)}

    async def children(self) -> dict[str, str]:
        """Resource and name of all that belongs to jobs, with the uid."""
        found: dict[str, str] = {}
        for resource in UNTOUCHED:
            for raw in await self.stage.admin.all(resource, self.stage.namespace):
                found[named(resource, raw)] = raw["metadata"]["uid"]
        return found


def named(resource: Resource, raw: Json) -> str:
    return f"{resource.plural}/{raw['metadata']['name']}"


@pytest.fixture
async def town(on_cluster: Helm, cluster: ControlPlane, tmp_path: Path) -> AsyncIterator[Town]:
    """The earlier chart is installed, and its operator leads."""
    folder = tmp_path / "earlier"
    folder.mkdir()
    chart = unpack_earlier(folder) / "manifests/chart/ddpjob"
    on_cluster.run("install", "ddpjob", str(chart), "--namespace", NAMESPACE)
    cluster.sign_in_operator()
    namespace = cluster.new_namespace()
    async with contextlib.AsyncExitStack() as ends:
        admin = Admin(await connect(str(cluster.admin_kubeconfig)))
        ends.push_async_callback(admin.connection.close)
        versions: list[Version] = []
        for code in (folder / "operator", ROOT / "operator"):
            upstream = await connect(str(cluster.operator_kubeconfig))
            ends.push_async_callback(upstream.close)
            proxy = await ends.enter_async_context(FaultyProxy(upstream))
            place = tmp_path / f"operator-{len(versions)}"
            kubeconfig = proxy.write_kubeconfig(place.with_suffix(".json"))
            operator = OperatorProcess(kubeconfig, place.with_suffix(".log"), code=code)
            ends.push_async_callback(operator.end)
            versions.append(Version(operator, proxy))
        kubelet = Kubelet(admin, namespace)
        playing = asyncio.create_task(kubelet.run())
        ends.callback(playing.cancel)
        earlier, this = versions
        await earlier.operator.start()
        await until("the earlier version leads", earlier.leads)
        stage = Stage(admin, namespace, earlier.proxy, earlier.operator, kubelet)
        yield Town(on_cluster, stage, earlier, this)


async def test_jobs_of_an_earlier_version_go_on_untouched_under_this_one_and_after_a_rollback(town: Town) -> None:
    await make_jobs(town.stage)
    children = await town.children()
    assert {kind.partition("/")[0] for kind in children} == {resource.plural for resource in UNTOUCHED}
    assert "podSecurity" not in (await town.stage.status("digits")), "the earlier version does not know this field"

    await town.run_helm("upgrade", "ddpjob", str(CHART))
    await succeed(town, town.earlier, town.this, attempt=2)
    await go_on(town, attempt=1)
    await town.run_helm("rollback", "ddpjob", "1")
    await succeed(town, town.this, town.earlier, attempt=3)
    await go_on(town, attempt=2)
    for version in (town.earlier, town.this):
        assert "Traceback" not in version.operator.log()


async def make_jobs(stage: Stage) -> None:
    """Have jobs of all kinds in the phases in which they stay."""
    stage.kubelet.exits.update({"done-a0-0": 0, "failed-a0-0": 1, "again-a0-1": 1})
    for name, (_, spec) in JOBS_OF_ALL_KINDS.items():
        await stage.create(name, **spec)
    for name, (phase, _) in JOBS_OF_ALL_KINDS.items():
        await until(f"{name} is {phase}", partial(phase_is, stage, name, phase))
    await until("again runs again", partial(runs_in, stage, "again", 1))


async def runs_in(stage: Stage, name: str, attempt: int) -> bool:
    status = await stage.status(name)
    return (status["phase"], status["attempt"], status["podsCreated"]) == ("Running", attempt, True)


async def succeed(town: Town, former: Version, leader: Version, attempt: int) -> None:
    """Both run, as the pods of a Deployment do that is updated: the new one stands by until the former ends.

    A pod of the job `again` fails meanwhile. An earlier version leaves a job alone that it reads by this definition,
    which adds fields that it does not know; in any case the failure is counted once.

    Args:
        town: the cluster.
        former: the version that leads.
        leader: the one that will.
        attempt: which one the job `again` begins.
    """
    leader.proxy.writes.clear()
    await leader.operator.start()
    await until("it stands by", leader.stands_by)
    children, before = await town.children(), await town.jobs()
    town.stage.kubelet.exits[f"again-a{attempt - 1}-1"] = 1
    await until("a pod of again has failed", partial(has_failed, town.stage, f"again-a{attempt - 1}-1"))
    assert await former.leads()
    assert leader.proxy.writes == []
    assert await former.operator.stop() == 0
    await until("it has looked at everything", leader.has_looked_at_everything)
    await assert_untouched(town, leader, children, before)
    await until("again runs again", partial(runs_in, town.stage, "again", attempt))
    restarts = (await town.stage.status("again"))["restarts"]
    assert (restarts["counted"], restarts["ignored"]) == (attempt, 0)


async def has_failed(stage: Stage, name: str) -> bool:
    pods = await stage.admin.all(PODS, stage.namespace)
    # An operator that already knows may have deleted it.
    return not any(pod["metadata"]["name"] == name and pod["status"]["phase"] != "Failed" for pod in pods)


async def assert_untouched(town: Town, leader: Version, children: dict[str, str], before: dict[str, Json]) -> None:
    """Of all jobs but `again`, nothing was created, replaced, deleted or counted, and what a user has said stands."""

    def of_others(names: Mapping[str, str]) -> dict[str, str]:
        return {name: uid for name, uid in names.items() if "/again" not in name}

    assert of_others(await town.children()) == of_others(children)
    after = await town.jobs()
    ended = {name for name, (phase, _) in JOBS_OF_ALL_KINDS.items() if phase in ("Succeeded", "Failed")}
    for name, job in before.items():
        if name == "again":
            continue
        allowed = SPEC_OF_ONE_VERSION if name in ended else SPEC_OF_ONE_VERSION | STATUS_OF_ONE_VERSION
        assert set(differences(job, after[name])) <= allowed, name
        identities = [(each["metadata"]["uid"], each["metadata"]["generation"]) for each in (job, after[name])]
        assert identities[0] == identities[1], name
    # Each status once, since it says something else, and those of jobs that have ended not at all.
    written = [str(write) for write in leader.proxy.writes if write.done and "again" not in write.what]
    live = before.keys() - ended - {"again"}
    assert sorted(each for each in written if "/events" not in each and "events/" not in each) == sorted(
        f"PUT ddpjobs/{name}/status" for name in live
    )


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Paths at which the spec or the status of two versions of a job differ."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        if before != after:
            yield path
        return
    for name in ("spec", "status") if not path else before.keys() | after.keys():
        yield from differences(before.get(name), after.get(name), f"{path}.{name}" if path else name)


async def go_on(town: Town, attempt: int) -> None:
    """A job whose pod fails is restarted and counted once more, and one that is resumed runs."""
    stage = town.stage
    stage.kubelet.exits[f"digits-a{attempt - 1}-0"] = 1
    await until("it runs again", partial(runs_in, stage, "digits", attempt))
    restarts = (await stage.status("digits"))["restarts"]
    assert (restarts["counted"], restarts["ignored"]) == (attempt, 0)
    await stage.set_spec("rests", suspend=False)
    await until("it is resumed", partial(phase_is, stage, "rests", "Running"))
    await stage.set_spec("rests", suspend=True)
    await until("it is suspended", partial(phase_is, stage, "rests", "Suspended"))
