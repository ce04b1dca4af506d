"""Operators of lists of namespaces, with permissions in these alone: each does its own jobs, whatever the others do."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import yaml

from ddpjob_core.api.resources import LEASES
from ddpjob_core.api.scope import Scope
from ddpjob_operator.connection import connect
from tests.apiserver.controlplane import BASE, ROOT, ControlPlane
from tests.apiserver.faulty_proxy import FaultyProxy
from tests.apiserver.stage import Admin, ForkedOperator, Kubelet, Stage, all_run, until

pytestmark = pytest.mark.timeout(240)

ROLE: Final = ROOT / "manifests/overlays/namespaces/role"
LIMITS: Final = ("--lease-duration=3", "--watch-seconds=4")


@dataclass
class Shard:
    """An operator whose service account has a namespace of its own, and its way to the API server."""

    operator: ForkedOperator
    proxy: FaultyProxy

    async def is_ready(self) -> bool:
        return (await self.operator.fetch("/readyz"))[0] == 200

    async def leads(self) -> bool:
        return await self.operator.metric("leading") == 1

    @property
    def made(self) -> set[str]:
        """The jobs that it has made pods for."""
        pods = [each.what for each in self.proxy.writes if str(each).startswith("POST pods/")]
        return {pod.removeprefix("pods/").rpartition("-a")[0] for pod in pods}


@dataclass
class Scene:
    """Namespaces for jobs, and one for Leases; operators by name."""

    plane: ControlPlane
    folder: Path
    admin: Admin
    home: str
    ends: contextlib.AsyncExitStack

    def permit(self, user: str, namespace: str, folder: Path, *files: str, leases: Sequence[str] = ()) -> None:
        """Grant the account of a namespace in another one what these manifests do, with Leases of these names."""
        for file in files:
            manifest = yaml.safe_load((folder / file).read_text())
            for rule in manifest.get("rules", ()):
                if "resourceNames" in rule:
                    rule["resourceNames"] = list(leases)
            manifest["metadata"].update(namespace=namespace, name=f"of-{user}")
            if manifest["kind"] == "RoleBinding":
                manifest["roleRef"]["name"] = f"of-{user}"
                manifest["subjects"][0].update(name="nobody", namespace=user)
            self.plane.admin.apply(manifest)

    def serve(self, user: str, *namespaces: str) -> None:
        """Grant what the overlay for a list of namespaces grants in each."""
        for namespace in namespaces:
            self.permit(user, namespace, ROLE, "role.yaml", "role-binding.yaml")

    def account(self, *scopes: Scope) -> tuple[str, Path]:
        """A service account that may take the Leases of these and nothing else: its namespace, and its kubeconfig."""
        user = self.plane.new_namespace()
        kubeconfig = self.plane.new_user(user)
        own = [scope.lease for scope in scopes]
        self.permit(user, self.home, BASE, "role.yaml", "role-binding.yaml", leases=own)
        return user, kubeconfig

    async def shard(self, kubeconfig: Path, name: str, *namespaces: str) -> Shard:
        """An operator that is started."""
        upstream = await connect(str(kubeconfig))
        self.ends.push_async_callback(upstream.close)
        proxy = await self.ends.enter_async_context(FaultyProxy(upstream))
        flags = [f"--namespace={each}" for each in namespaces]
        operator = ForkedOperator(
            proxy.write_kubeconfig(self.folder / f"{name}.json"),
            self.folder / f"{name}.log",
            f"--lease-namespace={self.home}",
            *flags,
            *LIMITS,
        )
        operator.pod = name
        self.ends.push_async_callback(operator.end)
        await operator.start()
        return Shard(operator, proxy)

    def stage(self, namespace: str, shard: Shard) -> Stage:
        """A namespace in which pods run."""
        kubelet = Kubelet(self.admin, namespace)
        playing = asyncio.create_task(kubelet.run())
        self.ends.callback(playing.cancel)
        return Stage(self.admin, namespace, shard.proxy, shard.operator, kubelet)

    async def count_terms(self, shard: str, terms: int) -> None:
        """Let the Lease be in use since long ago."""
        await self.admin.change(LEASES, self.home, shard, lambda raw: raw["spec"].update(leaseTransitions=terms))


@pytest.fixture
async def scene(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Scene]:
    async with contextlib.AsyncExitStack() as ends:
        admin = Admin(await connect(str(control_plane.admin_kubeconfig)))
        ends.push_async_callback(admin.connection.close)
        yield Scene(control_plane, tmp_path, admin, control_plane.new_namespace(), ends)


async def runs(stage: Stage, job: str) -> None:
    await until(f"{job} runs", partial(all_run, stage, job, 1))


async def test_each_shard_does_the_jobs_of_its_own_namespaces_and_of_those_only(scene: Scene) -> None:
    a, b, c, d = (scene.plane.new_namespace() for _ in range(4))
    absent = f"{a}-absent"
    user, kubeconfig = scene.account(Scope.of(a, b, absent), Scope.of(b, c))
    other_user, other_kubeconfig = scene.account(Scope.of(c, d))
    scene.serve(user, a, b)
    scene.serve(other_user, c)
    one = await scene.shard(kubeconfig, "one", a, f"{b},{absent}")
    two = await scene.shard(other_kubeconfig, "two", f"{c},{d}")
    stages = {name: scene.stage(name, one if name in (a, b) else two) for name in (a, b, c, d)}
    for name, stage in stages.items():
        await stage.create(f"first-{name}", nodes=1)
    for name in (a, b, c):
        await runs(stages[name], f"first-{name}")
    # What cannot be watched stops nothing else, and is said.
    for shard, unserved in ((one, absent), (two, d)):
        await until("the namespace without a Role is noticed", partial(says_not_served, shard, unserved))
        assert shard.operator.log().count(f"pods in {unserved} cannot be watched") == 1
    assert await one.operator.metric("namespace_served", namespace=absent) == 0
    assert [await one.operator.metric("namespace_served", namespace=name) for name in (a, b)] == [1, 1]
    assert await is_untouched(stages[d], f"first-{d}")
    scene.serve(other_user, d)
    await runs(stages[d], f"first-{d}")
    await until("it is served", partial(serves, two, d))
    # A third one, whose permissions would do for both, waits and says for which namespaces.
    scene.serve(user, c)
    third = await scene.shard(kubeconfig, "third", b, c)
    await until("the third one sees both", partial(waits_for, third, 2))
    for namespace, shard in ((b, "one"), (c, "two")):
        lease = Scope.of(a, b, absent).lease if shard == "one" else Scope.of(c, d).lease
        said = f"{shard}_{shard} (Lease {scene.home}/{lease}, namespace {namespace})"
        await until("it says so", lambda said=said: said in third.operator.log())
    # Nobody does the jobs of one that has died, until it is back.
    one.operator.kill()
    await one.operator.gone()
    await stages[a].create("orphan", nodes=1)
    await until("its Lease has expired", partial(waits_for, third, 1))
    await stages[c].create("later", nodes=1)
    await runs(stages[c], "later")
    assert await is_untouched(stages[a], "orphan")
    await one.operator.start()
    await runs(stages[a], "orphan")
    assert (one.made, two.made) == ({f"first-{a}", f"first-{b}", "orphan"}, {f"first-{c}", f"first-{d}", "later"})
    assert third.proxy.writes == []


async def is_untouched(stage: Stage, job: str) -> bool:
    """Whether no operator has written its status."""
    return "leaderEpoch" not in await stage.status(job)


async def says_not_served(shard: Shard, namespace: str) -> bool:
    code, text = await shard.operator.fetch("/readyz")
    lines = text.splitlines()
    return code == 200 and lines[0] == "ok" and any(f"namespace {namespace} is not served: " in line for line in lines)


async def serves(shard: Shard, namespace: str) -> bool:
    said = await shard.operator.fetch("/readyz") == (200, "ok\n")
    return said and await shard.operator.metric("namespace_served", namespace=namespace) == 1


async def waits_for(shard: Shard, others: int) -> bool:
    return await shard.operator.metric("overlapping_leases") == others and await shard.operator.metric("leading") == 0


@pytest.mark.skipif(
    os.environ.get("DDPJOB_FULL") != "1", reason="test_election has it without processes: make test-full"
)
async def test_jobs_go_on_under_another_list_although_its_lease_is_new(scene: Scene) -> None:
    a, b = scene.plane.new_namespace(), scene.plane.new_namespace()
    user, kubeconfig = scene.account(Scope.of(a), Scope.of(a, b))
    scene.serve(user, a, b)
    before = await scene.shard(kubeconfig, "before", a)
    stage = scene.stage(a, before)
    await until("it leads", before.leads)
    await scene.count_terms(Scope.of(a).lease, 70)
    await stage.create("digits", nodes=1, restart={"backoffSeconds": 0})
    await until("its status is of a late term", partial(is_of_term, stage, 70))
    assert await before.operator.stop() == 0
    written = int((await stage.status("digits"))["leaderEpoch"])
    await scene.shard(kubeconfig, "after", a, b)
    stage.kubelet.exits["digits-a0-0"] = 1
    await until("the job goes on", partial(is_of_term, stage, written + 1))
    await until("it is in its next attempt", partial(is_in_attempt, stage, 1))
    await runs(stage, "digits")
    assert (await stage.status("digits"))["restarts"]["counted"] == 1


async def is_of_term(stage: Stage, least: int) -> bool:
    return int((await stage.status("digits")).get("leaderEpoch", 0)) >= least


async def is_in_attempt(stage: Stage, attempt: int) -> bool:
    return (await stage.status("digits")).get("attempt") == attempt


async def test_of_a_namespace_nothing_is_done_before_its_pods_are_listed(scene: Scene) -> None:
    """Jobs can be seen and not yet pods, as while an administrator grants one after the other."""
    a, b = scene.plane.new_namespace(), scene.plane.new_namespace()
    user, kubeconfig = scene.account(Scope.of(a, b))
    scene.serve(user, a)
    scene.permit(user, b, ROLE, "role-binding.yaml")
    role = yaml.safe_load((ROLE / "role.yaml").read_text())
    role["metadata"].update(namespace=b, name=f"of-{user}")
    pods = next(rule for rule in role["rules"] if rule["resources"] == ["pods"])
    role["rules"].remove(pods)
    scene.plane.admin.apply(role)
    shard = await scene.shard(kubeconfig, "shard", f"{a},{b}")
    stages = [scene.stage(name, shard) for name in (a, b)]
    for stage in stages:
        await stage.create("digits", nodes=1)
    await runs(stages[0], "digits")
    await until("it is said", partial(says_not_served, shard, b))
    assert await is_untouched(stages[1], "digits")
    role["rules"].append(pods)
    scene.plane.admin.apply(role)
    await runs(stages[1], "digits")
