"""The informer against a real API server through every way in which a stream can fail."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from time import monotonic

import pytest

from ddpjob_core.api.resources import PODS
from ddpjob_core.engine.protocols import Json
from ddpjob_core.engine.store import Store
from ddpjob_core.observations.observe import pod_record
from ddpjob_core.observations.observed import PodRecord
from ddpjob_operator.connection import connect
from ddpjob_operator.informer import Informer, WatchLimits
from ddpjob_operator.kube import KubeClient
from tests.apiserver.controlplane import ControlPlane
from tests.apiserver.faulty_proxy import FaultyProxy
from tests.apiserver.stage import Admin, until

pytestmark = pytest.mark.timeout(120)

LABELS = {"app.kubernetes.io/managed-by": "ddpjob", "ddpjob.dev/job": "digits"}


@dataclass
class Scene:
    """An informer behind a proxy, and pods to watch."""

    admin: Admin
    namespace: str
    proxy: FaultyProxy
    store: Store[PodRecord]
    informer: Informer[PodRecord]
    reasons: list[str]
    changes: list[tuple[PodRecord | None, PodRecord | None]]
    following: list[asyncio.Task[None]] = field(default_factory=list)

    async def follow(self) -> None:
        self.following.append(asyncio.create_task(self.informer.run()))
        await until("the pods are listed", self.informer.synced.is_set)
        await self.watched(1)

    async def watched(self, times: int) -> None:
        await until(f"watch number {times} is open", lambda: self.proxy.opened.get("pods", 0) >= times)

    async def make(self, name: str, **labels: str) -> Json:
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace, "labels": labels or LABELS},
            "spec": {"containers": [{"name": "trainer", "image": "i"}]},
        }
        return await self.admin.kube.create(PODS, manifest)

    async def remove(self, name: str) -> None:
        uid = (await self.admin.kube.get(PODS, self.namespace, name))["metadata"]["uid"]
        await self.admin.kube.delete(PODS, self.namespace, name, uid=uid, grace_seconds=0)

    async def label(self, name: str, **labels: str | None) -> None:
        def edit(raw: Json) -> None:
            for key, value in labels.items():
                raw["metadata"]["labels"].pop(key, None) if value is None else raw["metadata"]["labels"].update(
                    {key: value}
                )

        await self.admin.change(PODS, self.namespace, name, edit)

    async def shows(self, *names: str) -> None:
        """The store comes to the truth."""
        await until(f"the store shows {names}", lambda: self.names == sorted(names))
        pods = {pod["metadata"]["name"]: pod for pod in await self.admin.all(PODS, self.namespace)}
        expected = {name: pods[name]["metadata"]["resourceVersion"] for name in names}
        await until("all that it shows is up to date", lambda: self.versions == expected)

    @property
    def names(self) -> list[str]:
        return sorted(record.name for record in self.store)

    @property
    def versions(self) -> dict[str, str]:
        return {record.name: record.resource_version for record in self.store}


@contextlib.asynccontextmanager
async def set_scene(plane: ControlPlane, limits: WatchLimits, namespace: str) -> AsyncIterator[Scene]:
    async with contextlib.AsyncExitStack() as ends:
        admin, upstream = (
            Admin(await connect(str(plane.admin_kubeconfig))),
            await connect(str(plane.operator_kubeconfig)),
        )
        ends.push_async_callback(admin.connection.close)
        ends.push_async_callback(upstream.close)
        proxy = await ends.enter_async_context(FaultyProxy(upstream))
        folder = plane.folder / f"{namespace}.json"
        connection = await connect(str(proxy.write_kubeconfig(folder)))
        ends.push_async_callback(connection.close)
        changes: list[tuple[PodRecord | None, PodRecord | None]] = []
        reasons: list[str] = []
        store: Store[PodRecord] = Store(listener=lambda *change: changes.append(change))
        informer = Informer(
            # Chunks of two: a list of three pods already has a second one.
            KubeClient(connection, count=lambda *_: None, page_size=2),
            PODS,
            store,
            pod_record,
            namespace=namespace,
            selector="app.kubernetes.io/managed-by=ddpjob",
            clock=monotonic,
            limits=limits,
            reconnected=reasons.append,
        )
        scene = Scene(admin, namespace, proxy, store, informer, reasons, changes)
        yield scene
        for task in scene.following:
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled(), "no failure ends an informer"


@pytest.fixture
async def scene(control_plane: ControlPlane) -> AsyncIterator[Scene]:
    limits = WatchLimits(watch=60, silence=60, first_backoff=0.05, longest_backoff=0.5)
    async with set_scene(control_plane, limits, control_plane.new_namespace()) as scene:
        yield scene


async def test_pods_that_were_there_before_are_listed_in_chunks_and_later_ones_watched(scene: Scene) -> None:
    for number in range(3):
        await scene.make(f"old-{number}")
    await scene.make("foreign", app="other")
    await scene.follow()
    await scene.shows("old-0", "old-1", "old-2")
    await scene.make("new")
    await scene.remove("old-1")
    await scene.shows("new", "old-0", "old-2")
    assert scene.reasons == []


async def test_a_stream_that_is_cut_loses_nothing(scene: Scene) -> None:
    await scene.make("kept")
    await scene.make("gone")
    await scene.follow()
    await scene.shows("gone", "kept")
    scene.proxy.dead = True
    scene.proxy.cut("pods")
    await scene.make("new")
    await scene.remove("gone")
    await scene.label("kept", changed="yes")
    scene.proxy.dead = False
    await scene.shows("kept", "new")
    assert "failed" in scene.reasons


async def test_a_stream_that_falls_silent_is_given_up_and_loses_nothing(control_plane: ControlPlane) -> None:
    limits = WatchLimits(watch=60, silence=1.0, first_backoff=0.05, longest_backoff=0.5)
    async with set_scene(control_plane, limits, control_plane.new_namespace()) as scene:
        await scene.make("gone")
        await scene.follow()
        await scene.shows("gone")
        scene.proxy.mute("pods")
        await scene.make("new")
        await scene.remove("gone")
        await scene.shows("new")


def has_said_gone(scene: Scene, times: int) -> bool:
    return scene.reasons.count("gone") == times


async def test_deletions_during_a_gap_that_the_server_cannot_replay_are_noticed(scene: Scene) -> None:
    for name in ("a", "b", "c"):
        await scene.make(name)
    await scene.follow()
    await scene.shows("a", "b", "c")
    for number, form in enumerate(("answer", "event"), start=1):
        scene.proxy.dead = True
        scene.proxy.cut("pods")
        await scene.remove("a" if number == 1 else "b")
        await scene.make(f"new-{number}")
        scene.proxy.gone["pods"] = form
        scene.proxy.dead = False
        await until("the server says 410", partial(has_said_gone, scene, number))
        await scene.shows(*(["b", "c", "new-1"] if number == 1 else ["c", "new-1", "new-2"]))


async def test_a_history_that_etcd_has_forgotten_is_listed_again(breakable_control_plane: ControlPlane) -> None:
    limits = WatchLimits(watch=60, silence=60, first_backoff=0.05, longest_backoff=0.5)
    async with set_scene(breakable_control_plane, limits, breakable_control_plane.new_namespace()) as scene:
        await scene.make("gone")
        await scene.follow()
        await scene.shows("gone")
        scene.proxy.dead = True
        scene.proxy.cut("pods")
        await scene.remove("gone")
        await scene.make("new")
        breakable_control_plane.compact()
        breakable_control_plane.kill()
        breakable_control_plane.start_api_server()
        scene.proxy.dead = False
        await scene.shows("new")
        assert has_said_gone(scene, 1)


async def test_events_that_come_twice_or_again_much_later_change_nothing(scene: Scene) -> None:
    scene.proxy.doubled.add("pods")
    await scene.follow()
    for name in ("a", "b"):
        await scene.make(name)
    await scene.label("a", changed="yes")
    await scene.shows("a", "b")
    await scene.remove("b")
    await scene.shows("a")
    seen = len(scene.changes)
    # All that was ever told, creations of what is gone included.
    await scene.proxy.replay("pods")
    await scene.make("last")
    await scene.shows("a", "last")
    assert [after.name for _, after in scene.changes[seen:] if after is not None] == ["last"] * (
        len(scene.changes) - seen
    )


async def test_a_pod_that_loses_its_label_is_gone_until_it_has_it_again(scene: Scene) -> None:
    await scene.make("stray")
    await scene.follow()
    await scene.shows("stray")
    await scene.label("stray", **{"app.kubernetes.io/managed-by": "nobody"})
    await scene.shows()
    await scene.label("stray", **LABELS)
    await scene.shows("stray")


async def test_the_answers_of_writes_stand_while_the_watch_is_behind(scene: Scene) -> None:
    await scene.follow()
    scene.proxy.mute("pods")
    created = pod_record(await scene.make("mine"))
    assert created is not None
    scene.store.remember(created)
    # The stream has shown nothing of it: what came before must not undo it.
    await scene.proxy.replay("pods")
    assert scene.names == ["mine"]
    await scene.remove("mine")
    scene.store.forget(scene.namespace, "mine", created.uid)
    for stream in scene.proxy.streams:
        stream.muted = False
    scene.proxy.cut("pods")
    await scene.watched(2)
    await scene.make("later")
    await scene.shows("later")
    assert sum(after is not None and after.name == "mine" for _, after in scene.changes) == 1


async def test_a_server_that_pauses_is_waited_for(breakable_control_plane: ControlPlane) -> None:
    limits = WatchLimits(watch=60, silence=0.5, first_backoff=0.05, longest_backoff=0.5)
    async with set_scene(breakable_control_plane, limits, breakable_control_plane.new_namespace()) as scene:
        await scene.make("a")
        await scene.follow()
        with breakable_control_plane.paused():
            await until("the silence is noticed", lambda: scene.informer.silent_for > 1.5)
        await scene.make("b")
        await scene.shows("a", "b")
