"""What holds for every order of events, crashes of the operator included."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st
from world import World, spec_of

from ddpjob_core.api import ConditionType, DDPJobStatus
from ddpjob_core.api.status import Membership, Progress
from ddpjob_core.children.hashes import spec_hash
from ddpjob_core.observations.observed import Terminated
from ddpjob_core.wire.progress import ProgressReport

MAX_RESTARTS = 3

steps = st.one_of(
    st.tuples(st.just("reconcile"), st.none() | st.integers(0, 6)),
    st.tuples(st.just("run"), st.integers(0, 7)),
    st.tuples(st.just("end"), st.integers(0, 7), st.sampled_from([0, 0, 1, 137])),
    st.tuples(st.just("delete"), st.integers(0, 7)),
    st.tuples(st.just("remove"), st.none()),
    st.tuples(st.just("suspend"), st.booleans()),
    # Of an elastic job while it runs; another one is suspended, edited and resumed before the operator looks.
    st.tuples(st.just("respecify"), st.integers(1, 3)),
    st.tuples(st.just("spares"), st.integers(0, 2)),
    st.tuples(st.just("assign"), st.integers(0, 7)),
    st.tuples(st.just("unmount"), st.integers(0, 7)),
    st.tuples(st.just("lose"), st.integers(0, 7)),
    # A user deletes the service.
    st.tuples(st.just("unserve"), st.none()),
    st.tuples(st.just("evict"), st.integers(0, 7)),
    st.tuples(st.just("report"), st.integers(0, 2), st.integers(0, 9), st.sampled_from([0.0, 3.0, 30.0])),
    st.tuples(st.just("advance"), st.sampled_from([0.3, 1.0, 6.0, 40.0])),
    st.tuples(st.just("take over"), st.sampled_from([-3600.0, -2.0, 0.0])),
)


def play(world: World, step: tuple[object, ...]) -> None:
    kind, argument = step[0], step[1]
    names = sorted(world.pods)
    if kind == "reconcile":
        world.reconcile(crash_after=argument if isinstance(argument, int) else None)
    elif kind == "unserve":
        world.service = None
    elif kind == "remove":
        world.kubelet_removes_deleted_pods()
    elif kind == "spares" and world.spec.elastic is not None:
        change(world, {"elastic": world.spec.elastic.model_copy(update={"spare_nodes": argument})})
    elif kind in ("suspend", "respecify"):
        change(world, {"suspend": bool(argument)} if kind == "suspend" else {"nodes": argument})
    elif kind in ("advance", "take over"):
        assert isinstance(argument, float)
        world.advance(argument) if kind == "advance" else world.take_over(argument)
    elif kind == "report":
        report(world, step)
    elif names and isinstance(argument, int):
        happen(world, names[argument % len(names)], step)


def happen(world: World, name: str, step: tuple[object, ...]) -> None:
    """Something happens to a pod."""
    kind, pod = step[0], world.pods[name]
    ended = isinstance(pod.trainer, Terminated)
    if kind == "lose":
        world.pods[name] = replace(pod, node_lost=not pod.node_lost)
    elif kind == "assign" and pod.phase == "Pending":
        world.assign(name)
    elif kind == "unmount" and pod.phase == "Pending":
        world.pods[name] = replace(pod, unmounted_since=world.now)
    elif kind == "evict":
        world.pods[name] = replace(pod, disruption="EvictionByEvictionAPI")
        world.delete_pod(name)
    elif kind == "delete":
        world.delete_pod(name)
    elif kind == "run" and not ended:
        world.run(name)
    elif kind == "end" and not ended:
        assert isinstance(step[2], int)
        world.end(name, step[2])


def report(world: World, step: tuple[object, ...]) -> None:
    _, rank, number, since = step
    assert isinstance(rank, int)
    assert isinstance(number, int)
    assert isinstance(since, float)
    attempt = world.status.attempt if world.status is not None else 0
    world.report_rank(rank, number or None, since_step=since, process_restarts=number // 5)
    if rank == 0:
        # An odd step is one of ranks that can go on without a node.
        known = world.status.membership if world.status is not None else None
        rejoins = known.generation if known is not None and number % 2 else None
        world.progress = ProgressReport(attempt, Progress(step=number, rejoins=rejoins), "0.5")


def change(world: World, fields: dict[str, object]) -> None:
    if world.status is None or not world.status.finished:
        world.spec = world.spec.model_copy(update=fields)


def shown_ready(world: World, status: DDPJobStatus | None = None) -> int:
    shown = status or world.status
    assert shown is not None
    return shown.nodes.ready if shown.nodes is not None else 0


def finish(world: World) -> None:
    world.spec = world.spec.model_copy(update={"suspend": False})
    for _ in range(40):
        world.kubelet_removes_deleted_pods()
        world.advance(70)
        world.settle()
        if world.status is not None and world.status.finished:
            return
        for name in world.live():
            world.end(name, 0)
    raise AssertionError(f"never finished: {world.status}")


@settings(max_examples=400, deadline=None)
@given(
    nodes=st.integers(1, 3),
    walk=st.lists(steps, max_size=40),
    action=st.sampled_from(["Warn", "Restart", "Fail"]),
    elastic=st.sampled_from([None, {"maxNodes": 3}, {"maxNodes": 3, "spareNodes": 2}]),
    most_at_once=st.sampled_from([None, 1]),
    clean=st.sampled_from(["None", "Running"]),
    trains=st.booleans(),
)
@example(
    nodes=1,
    walk=[("reconcile", None), ("suspend", True), ("reconcile", None), ("suspend", False), ("reconcile", None)],
    action="Warn",
    elastic={"maxNodes": 3},
    most_at_once=None,
    clean="None",
    trains=False,
)
def test_whatever_happens_the_job_ends_with_exact_counts_and_no_live_pod(  # noqa: PLR0917 hypothesis' own
    nodes: int,
    walk: list[tuple[object, ...]],
    action: str,
    elastic: dict[str, int] | None,
    most_at_once: int | None,
    clean: str,
    *,
    trains: bool,
) -> None:
    deadlines = {
        "progressDeadline": {"seconds": 20, "action": action},
        "startupDeadline": {"seconds": 30, "action": action},
    }
    spec = spec_of(
        nodes=nodes, restart={"maxRestarts": MAX_RESTARTS}, elastic=elastic, cleanPodPolicy=clean, **deadlines
    )
    world = World(spec=spec, most_at_once=most_at_once)
    if trains:
        # Nodes that are lost from here on come back in other pods.
        begin(world)
    for step in walk:
        before = world.status
        play(world, step)
        if before is not None and world.status is not None:
            assert world.status.attempt >= before.attempt
            # What is resumed before it had any pod starts over: nobody has heard of the membership that it had.
            starts_over = before.start_time is None and before.holds(ConditionType.SUSPENDED) and not world.pods
            assert starts_over or order_of(world.status.membership) >= order_of(before.membership)
            assert 0 <= world.status.restarts.counted - before.restarts.counted <= 1
            assert 0 <= world.status.restarts.ignored - before.restarts.ignored <= 1
            assert world.status.restarts.process >= before.restarts.process
            assert (world.status.restarts.furthest_step or 0) >= (before.restarts.furthest_step or 0)
            if before.finished:
                late = {"progress": before.progress, "summary": before.summary, "nodes": before.nodes}
                assert world.status.model_copy(update=late) == before, "only the last steps may come late"
                assert shown_ready(world) <= shown_ready(world, before)
    finish(world)
    status = world.status
    assert status is not None
    assert status.restarts.counted <= MAX_RESTARTS
    assert status.holds(ConditionType.SUCCEEDED) != status.holds(ConditionType.FAILED)
    counts = [written.restarts.counted for written in world.status_writes]
    assert counts == sorted(counts)
    check_spares([written.membership for written in world.status_writes if written.membership is not None])
    for one, next_one in pairwise(world.status_writes):
        before, after = (at.restarts.counted + at.restarts.ignored for at in (one, next_one))
        counted = after - before
        waits = next_one.attempt == one.attempt and is_rejoining(next_one) and not is_rejoining(one)
        assert counted == 1 if waits else counted in (0, int(next_one.attempt > one.attempt))
    # What a node's failure leaves behind stays for a person to look at, where the job asks for that.
    failed_node = status.failure is not None and status.failure.failure_class not in ("Stalled", "Deadline")
    assert not world.live() or (clean == "None" and failed_node), "a finished job leaves no live pod"
    if status.holds(ConditionType.SUCCEEDED):
        assert status.nodes is not None
        assert status.nodes.succeeded == (world.spec.nodes if status.membership is None else status.membership.nodes)
        made_of = {pod.spec_hash for name, pod in world.pods.items() if f"-a{status.attempt}-" in name}
        assert made_of <= {spec_hash(world.spec)}, "what has succeeded is what the spec asks for"


def check_spares(memberships: list[Membership]) -> None:
    """No spare has two places, nor waits once it has one, and no number is given again."""
    places: dict[tuple[int, int], tuple[int, int]] = {}
    for membership in memberships:
        spares = membership.spares
        waiting = [] if spares is None else [each.number for each in spares.waiting or ()]
        named = {each.spare: each.ordinal for each in membership.members or () if each.spare is not None}
        assert len({*waiting, *named}) == len(waiting) + len(named)
        assert len(named) == len([each for each in membership.members or () if each.spare is not None])
        assert spares is None or max([0, *waiting]) <= spares.last
        for number in waiting:
            assert (membership.attempt, number) not in places
        for each in membership.members or ():
            if each.spare is not None:
                place = each.ordinal, each.generation
                assert places.setdefault((membership.attempt, each.spare), place) == place


def begin(world: World) -> None:
    world.settle()
    world.run_all()
    world.settle()
    report(world, ("report", 0, 5, 0.0))
    world.advance(6)
    world.settle()


def is_rejoining(status: DDPJobStatus) -> bool:
    return status.membership is not None and status.membership.rejoining is not None


def order_of(membership: Membership | None) -> tuple[int, int]:
    return (-1, -1) if membership is None else (membership.attempt, membership.generation)


@settings(max_examples=200, deadline=None)
@given(
    walk=st.lists(steps, max_size=40),
    elastic=st.sampled_from([None, {"maxNodes": 3}, {"maxNodes": 3, "spareNodes": 2}]),
    trains=st.booleans(),
)
def test_a_second_look_at_the_same_moment_never_writes_again(
    walk: list[tuple[object, ...]], elastic: dict[str, int] | None, *, trains: bool
) -> None:
    world = World(spec=spec_of(nodes=2, elastic=elastic))
    if trains:
        begin(world)
    for step in walk:
        play(world, step)
    world.settle()
    plan = world.reconcile()
    assert plan.status is None
    assert plan.actions == ()
    assert plan.events == ()


@settings(max_examples=150, deadline=None)
@given(walk=st.lists(steps, max_size=40), ahead=st.sampled_from([-3600, -61, 61, 3600]))
def test_what_is_done_is_the_same_however_far_other_clocks_are_ahead(
    walk: list[tuple[object, ...]], ahead: float
) -> None:
    worlds = World(spec=spec_of(nodes=2)), World(spec=spec_of(nodes=2), others_ahead=timedelta(seconds=ahead))
    for step in walk:
        for world in worlds:
            play(world, step)
        same, other = worlds
        assert same.status == other.status
        assert same.requests == other.requests
