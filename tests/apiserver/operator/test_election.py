"""Who leads, by a Lease on a real API server: at most one at any moment, whatever happens to the others."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any

import pytest
import pytest_asyncio

from ddpjob_core.api.errors import NotLeading
from ddpjob_core.api.release import ANNOTATION_RELEASE, RELEASE
from ddpjob_core.api.resources import LEASES
from ddpjob_core.api.scope import SCOPE_ANNOTATION, Scope
from ddpjob_core.engine.protocols import Json
from ddpjob_operator.connection import connect
from ddpjob_operator.election import Election, Times
from ddpjob_operator.fence import Fence
from ddpjob_operator.informer import Informer, WatchLimits
from ddpjob_operator.kube import KubeClient
from ddpjob_operator.lease import LEASE_SELECTOR, LeaseRecord, lease_record
from tests.apiserver.controlplane import ControlPlane
from tests.apiserver.faulty_proxy import FaultyProxy
from tests.apiserver.stage import Admin, until

pytestmark = pytest.mark.timeout(120)

TIMES = Times.of(4)


@dataclass
class Candidate:
    """A process that would lead; `told` is common to all, in the order of time."""

    name: str
    told: list[str]
    proxy: FaultyProxy
    election: Election
    informer: Informer[LeaseRecord]
    fence: Fence
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def begin(self) -> None:
        self.told.append(f"{self.name} begins")

    def end(self) -> None:
        assert not self.fence.is_open
        self.told.append(f"{self.name} ends")

    async def start(self) -> None:
        self.tasks = [asyncio.create_task(self.informer.run())]
        await until("the leases are listed", self.informer.synced.is_set)
        self.tasks.append(asyncio.create_task(self.election.run(self)))

    async def stop(self) -> None:
        """As a process that is asked to."""
        self.tasks[1].cancel()
        await asyncio.wait([self.tasks[1]])
        await self.election.release()

    async def leads(self) -> None:
        await until(f"{self.name} leads", lambda: self.election.leads)

    async def follows(self) -> None:
        await until(f"{self.name} does not lead", lambda: not self.election.leads)

    @property
    def epoch(self) -> int:
        return self.election.epoch_over(None)


@dataclass
class Scene:
    """A namespace for Leases, and the candidates."""

    admin: Admin
    place: str
    plane: ControlPlane
    ends: contextlib.AsyncExitStack
    told: list[str] = field(default_factory=list)

    async def candidate(self, name: str, *scope: str) -> Candidate:
        proxy = await self.ends.enter_async_context(FaultyProxy(self.admin.connection))
        connection = await connect(str(proxy.write_kubeconfig(self.plane.folder / f"{self.place}-{name}.json")))
        self.ends.push_async_callback(connection.close)
        kube = KubeClient(connection, count=lambda *_: None, timeout=TIMES.request)
        fence = Fence(monotonic)
        election = Election(
            kube, place=self.place, scope=Scope.parse(scope), identity=name, fence=fence, clock=monotonic, times=TIMES
        )
        informer = Informer(
            kube,
            LEASES,
            election.leases,
            lease_record,
            namespace=self.place,
            selector=LEASE_SELECTOR,
            clock=monotonic,
            limits=WatchLimits(first_backoff=0.05, longest_backoff=0.2),
        )
        candidate = Candidate(name, self.told, proxy, election, informer, fence)
        self.ends.push_async_callback(_cancel, candidate)
        await candidate.start()
        return candidate

    async def lease(self, name: str = "ddpjob-operator") -> Json:
        return await self.admin.kube.get(LEASES, self.place, name)

    async def annotate(self, name: str, text: str) -> None:
        def edit(raw: Json) -> None:
            raw["metadata"]["annotations"] = {SCOPE_ANNOTATION: text}

        await self.admin.change(LEASES, self.place, name, edit)

    async def edit(self, **spec: Any) -> None:
        await self.admin.change(LEASES, self.place, "ddpjob-operator", lambda raw: raw["spec"].update(spec))

    def check(self) -> None:
        """No two led at the same time."""
        leading: set[str] = set()
        for each in self.told:
            name, what = each.split()
            leading ^= {name}
            assert (name in leading) == (what == "begins"), self.told
            assert len(leading) <= 1, self.told


async def _cancel(candidate: Candidate) -> None:
    for task in candidate.tasks:
        task.cancel()
    await asyncio.wait(candidate.tasks)


@pytest_asyncio.fixture
async def scene(control_plane: ControlPlane) -> AsyncIterator[Scene]:
    async with contextlib.AsyncExitStack() as ends:
        admin = Admin(await connect(str(control_plane.admin_kubeconfig)))
        ends.push_async_callback(admin.connection.close)
        scene = Scene(admin, control_plane.new_namespace(), control_plane, ends)
        yield scene
        scene.check()


async def test_one_leads_and_the_next_takes_over_as_soon_as_the_lease_is_released(scene: Scene) -> None:
    first = await scene.candidate("first")
    await first.leads()
    second = await scene.candidate("second")
    assert first.epoch == 1
    spec = (await scene.lease())["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"], spec["leaseDurationSeconds"]) == ("first", 1, 4)
    await until("it is renewed", lambda: len(first.proxy.renewals) > 4)
    assert second.proxy.renewals == [], "a standby writes nothing"
    await first.stop()
    await second.leads()
    assert second.epoch == 2
    assert scene.told == ["first begins", "first ends", "second begins"]


async def test_a_holder_that_cannot_renew_stops_before_the_next_one_begins(scene: Scene) -> None:
    first = await scene.candidate("first")
    await first.leads()
    second = await scene.candidate("second")
    for way in ("dead", "mute"):
        holder, other = (first, second) if first.election.leads else (second, first)
        if way == "dead":
            holder.proxy.dead = True
        else:
            holder.proxy.leases_open.clear()
        await other.leads()
        assert not holder.election.leads
        with pytest.raises(NotLeading):
            holder.election.epoch_over(None)
        holder.proxy.dead = False
        holder.proxy.leases_open.set()
        await until("it follows again", lambda holder=holder: not holder.election.overlapping)
    assert [each.split()[1] for each in scene.told] == ["begins", "ends"] * 2 + ["begins"]


async def test_a_holder_that_was_cut_off_alone_leads_again_in_a_new_term(scene: Scene) -> None:
    only = await scene.candidate("only")
    await only.leads()
    only.proxy.dead = True
    await only.follows()
    only.proxy.dead = False
    await only.leads()
    assert only.epoch == 2
    assert scene.told == ["only begins", "only ends", "only begins"]


async def test_a_lease_that_is_taken_by_hand_ends_the_term_immediately(scene: Scene) -> None:
    first = await scene.candidate("first")
    await first.leads()
    await scene.edit(holderIdentity="stranger", leaseTransitions=8)
    await first.follows()
    # It is never renewed, so it expires.
    await first.leads()
    assert first.epoch == 9


async def test_a_lease_that_is_edited_or_deleted_is_put_right(scene: Scene) -> None:
    first = await scene.candidate("first")
    await first.leads()
    second = await scene.candidate("second")
    await scene.edit(renewTime="2001-01-01T00:00:00.000000Z", leaseTransitions=0, leaseDurationSeconds=9999)
    renewals = len(first.proxy.renewals)
    await until("it is renewed", lambda: len(first.proxy.renewals) > renewals + 2)
    assert first.epoch == 1
    assert (await scene.lease())["spec"]["leaseTransitions"] == 1
    await scene.admin.change(LEASES, scene.place, "ddpjob-operator", lambda raw: raw["metadata"].pop("labels"))
    # Without its labels it is gone for those that watch it.
    await until("it has its labels again", partial(_has_labels, scene))
    lease = await scene.lease()
    await scene.admin.kube.delete(LEASES, scene.place, "ddpjob-operator", uid=lease["metadata"]["uid"])
    await until("it is there again", partial(_exists_again, scene, lease["metadata"]["uid"]))
    await first.leads()
    assert not second.election.leads
    assert first.epoch >= 2


async def _has_labels(scene: Scene) -> bool:
    return "labels" in (await scene.lease())["metadata"]


async def _exists_again(scene: Scene, uid: str) -> bool:
    with contextlib.suppress(Exception):
        return bool((await scene.lease())["metadata"]["uid"] != uid)
    return False


async def test_a_lease_that_counts_from_the_start_again_catches_up_with_the_statuses(scene: Scene) -> None:
    only = await scene.candidate("only")
    await only.leads()
    assert only.election.epoch_over(1) == 1
    with pytest.raises(NotLeading):
        only.election.epoch_over(40)
    await until("its term has a higher number", lambda: only.epoch > 40)
    assert only.election.epoch_over(40) == 41
    assert (await scene.lease())["spec"]["leaseTransitions"] == 41
    # What no operator can have written is not followed, and does not stop the job that says so.
    assert only.election.epoch_over(2**31 - 1) == 2**31 - 1
    assert only.epoch == 41
    assert scene.told == ["only begins"]


async def test_of_two_operators_with_overlapping_scopes_one_stands_by_and_says_why(scene: Scene) -> None:
    everywhere = await scene.candidate("everywhere")
    await everywhere.leads()
    one = await scene.candidate("one", "team-a")
    another = await scene.candidate("another", "team-b")
    await until("the overlap is seen", lambda: one.election.overlapping and another.election.overlapping)
    assert [record.holder for record in one.election.overlapping] == ["everywhere"]
    assert everywhere.election.overlapping == []
    await everywhere.stop()
    # Those two do not overlap. What is checked at the end holds for this scene up to here.
    scene.check()
    scene.told.clear()
    await one.leads()
    await another.leads()
    assert sorted(scene.told) == ["another begins", "one begins"]
    back = await scene.candidate("back")
    await until("the overlap is seen", lambda: len(back.election.overlapping) == 2)
    assert not back.election.leads
    await one.stop()
    await another.stop()
    await back.leads()
    scene.told.clear()


async def test_of_two_that_take_overlapping_leases_at_the_same_moment_one_leads_in_the_end(scene: Scene) -> None:
    everywhere, one = await asyncio.gather(scene.candidate("everywhere"), scene.candidate("one", "team-a"))
    await until("one of them leads", lambda: everywhere.election.leads or one.election.leads)
    leader, other = (everywhere, one) if everywhere.election.leads else (one, everywhere)
    await leader.stop()
    await other.leads()


async def test_lists_of_namespaces_overlap_where_they_have_one_in_common(scene: Scene) -> None:
    first = await scene.candidate("first", "team-a", "team-b")
    await first.leads()
    apart = await scene.candidate("apart", "team-c,team-d")
    await apart.leads()
    others = {
        "one": ("namespace team-b", await scene.candidate("one", "team-b")),
        "more": ("namespace team-a", await scene.candidate("more", "team-a", "team-e")),
        "all": ("namespaces team-a, team-b", await scene.candidate("all")),
    }
    for name, (common, other) in others.items():
        await until(f"{name} sees the overlap", lambda other=other: other.election.overlapping)
        assert not other.election.leads
        lease = Scope.of("team-a", "team-b").lease
        assert f"first (Lease {scene.place}/{lease}, {common})" in other.election.standing_by, name
    # Those two may lead at the same time: what is checked at the end is not about lists.
    assert first.election.overlapping == apart.election.overlapping == []
    await others["all"][1].stop()
    await first.stop()
    await others["one"][1].leads()
    await others["more"][1].leads()
    scene.told.clear()


async def test_a_lease_whose_list_was_edited_may_stand_for_any_namespace_until_it_is_put_right(scene: Scene) -> None:
    first = await scene.candidate("first", "team-a", "team-b")
    await first.leads()
    lease = Scope.of("team-a", "team-b").lease
    first.proxy.leases_open.clear()
    await scene.annotate(lease, "team-a")
    other = await scene.candidate("other", "team-c")
    await until("it is taken for an overlap", lambda: other.election.overlapping)
    assert "namespaces unknown" in other.election.standing_by
    first.proxy.leases_open.set()
    await other.leads()
    found = (await scene.lease(lease))["metadata"]["annotations"]
    assert found == {SCOPE_ANNOTATION: "team-a,team-b", ANNOTATION_RELEASE: RELEASE}
    scene.told.clear()


async def test_of_several_that_overlap_in_a_ring_one_leads_in_the_end(scene: Scene) -> None:
    ring = await asyncio.gather(
        scene.candidate("first", "team-a,team-b"),
        scene.candidate("second", "team-b,team-c"),
        scene.candidate("third", "team-c,team-a"),
        scene.candidate("fourth"),
    )
    await until("one of them leads", lambda: any(each.election.leads for each in ring))
    assert sum(each.election.leads for each in ring) == 1


async def test_statuses_of_a_lease_that_was_longer_in_use_are_written_after_a_move_to_another_list(
    scene: Scene,
) -> None:
    before = await scene.candidate("before", "team-a")
    await before.leads()
    with pytest.raises(NotLeading):
        before.election.epoch_over(70)
    await until("its term has a high number", lambda: before.epoch > 70)
    written = before.epoch
    for name, scope in (("list", ("team-a", "team-b")), ("everywhere", ())):
        await before.stop()
        before = await scene.candidate(name, *scope)
        await before.leads()
        assert before.epoch < written
        with pytest.raises(NotLeading):
            before.election.epoch_over(written)
        await until(
            "its term is over that of the status", lambda before=before, written=written: before.epoch > written
        )
        written = before.election.epoch_over(written)


async def test_an_operator_that_may_not_use_the_lease_says_so(control_plane: ControlPlane, scene: Scene) -> None:
    stranger = await connect(str(control_plane.operator_kubeconfig))
    scene.ends.push_async_callback(stranger.close)
    kube = KubeClient(stranger, count=lambda *_: None)
    election = Election(kube, place=scene.place, scope=Scope(), identity="x", fence=Fence(monotonic), clock=monotonic)
    running = asyncio.create_task(election.run(Candidate("x", scene.told, None, election, None, Fence(monotonic))))  # type: ignore[arg-type]
    try:
        await until("it has tried", lambda: election.problem)
        assert "leases" in str(election.problem)
        assert "forbidden" in str(election.problem)
    finally:
        running.cancel()
