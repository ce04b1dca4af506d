"""A job whose status the API server refuses goes on, and shows what may be shown."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from reconciling import EVENT, KEY, Bench, pod_of, pods

from ddpjob_core.api.errors import ApiError, Forbidden, Invalid
from ddpjob_core.api.status import Condition, ConditionType, DDPJobStatus, Failure, Nodes, Progress, Restarts, Stack
from ddpjob_core.children.actions import DeletePod
from ddpjob_core.decide import Plan
from ddpjob_core.engine.refused_status import dropped_fields, without

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STATUS = DDPJobStatus(
    attempt=1,
    pods_created=True,
    restarts=Restarts(counted=1, process=7),
    nodes=Nodes(desired=2, ready=1),
    progress=Progress(step=3, loss=0.5),
    failure=Failure(reason="R", message="m", rank=2),
    conditions=[
        Condition(type=kind, status="True", last_transition_time=NOW, reason="R", message="m")
        for kind in (ConditionType.TRAINING, ConditionType.STATUS_REFUSED)
    ],
)
LOSS = Invalid("refused", fields=(("status.progress.loss", "must be smaller"),))


def refuse_loss(status: dict[str, Any]) -> ApiError | None:
    return LOSS if "loss" in status.get("progress", {}) else None


@pytest.mark.parametrize(
    ("paths", "gone"),
    [
        (["status.progress.loss"], ["progress.loss"]),
        (["status.failure.reason"], ["failure"]),
        (["status.nodes.desired"], ["nodes"]),
        (["status.conditions[1].type"], ["conditions.1"]),
        (["status.conditions[0].type", "status.conditions[1].type"], ["conditions.0"]),
        (["status.restarts.process", "status.progress"], ["restarts.process", "progress"]),
    ],
)
def test_what_is_refused_is_left_out_with_what_needs_it(paths: list[str], gone: list[str]) -> None:
    kept = without(STATUS.to_wire(), paths)
    assert kept is not None
    assert (kept["attempt"], kept["podsCreated"], kept["restarts"]["counted"]) == (1, True, 1)
    for path in gone:
        value: Any = kept
        for key in path.split("."):
            value = (
                value[int(key)]
                if isinstance(value, list) and int(key) < len(value)
                else None
                if isinstance(value, list)
                else value.get(key)
            )
        assert value is None


@pytest.mark.parametrize(
    "paths",
    [
        [],
        [""],
        ["status"],
        ["status.attempt"],
        ["status.podsCreated"],
        ["status.conditions"],
        ["spec.nodes"],
        ["status.unheard"],
    ],
)
def test_a_status_is_not_written_without_what_decisions_are_made_by(paths: list[str]) -> None:
    assert without(STATUS.to_wire(), paths) is None


async def test_what_is_accepted_of_a_status_is_written_and_the_plan_is_carried_out(bench: Bench) -> None:
    bench.kube.refuse_status = refuse_loss
    requests = await bench.look(Plan(status=STATUS, urgent=True, actions=pods(1), events=(EVENT,)))
    assert requests == ["refused status", "status at 7", "create pods digits-a0-0", "create events"]
    stored = bench.caches.jobs.get(*KEY)
    assert stored is not None
    assert stored.status is not None
    assert stored.status.progress == Progress(step=3)
    assert bench.looks_again()
    await bench.look()
    assert bench.observed[-1].status_refused == "the API server refuses status.progress.loss, which are not shown"
    assert bench.observed[-1].job.status == STATUS, "what was decided counts, not what could be written"
    assert bench.metrics.refusals._value.get() == 1


@pytest.mark.parametrize(
    "refusal",
    [
        Invalid("status.attempt: no", fields=(("status.attempt", "no"),)),
        Invalid("no field is named"),
        Forbidden("admission webhook denied the request"),
    ],
)
async def test_a_job_whose_status_cannot_be_written_at_all_is_decided_on_by_what_was_decided(
    bench: Bench, refusal: ApiError
) -> None:
    bench.kube.refuse_status = lambda _: refusal
    requests = await bench.look(Plan(status=STATUS, urgent=True, actions=pods(1), events=(EVENT,)))
    assert requests == ["refused status", "create pods digits-a0-0", "create events"]
    await bench.look()
    assert bench.observed[-1].job.status == STATUS
    assert bench.observed[-1].status_refused.startswith("the API server refuses it: ")


async def test_a_refused_status_is_sent_again_after_a_while_and_counts_until_it_is_accepted(bench: Bench) -> None:
    bench.kube.refuse_status = refuse_loss
    await bench.look(Plan(status=STATUS, urgent=True))
    bench.now += timedelta(seconds=30)
    assert await bench.look() == []
    bench.now += timedelta(seconds=31)
    assert await bench.look() == ["refused status", "status at 101"]
    bench.kube.refuse_status = lambda _: None
    bench.now += timedelta(seconds=61)
    assert await bench.look() == ["status at 102"]
    await bench.look()
    assert bench.observed[-1].status_refused == ""
    assert bench.observed[-1].job.status == STATUS


def without_stacks(raw: dict[str, Any]) -> dict[str, Any]:
    """As a CRD that does not have the field stores it."""
    return {**raw, "status": {name: each for name, each in raw.get("status", {}).items() if name != "stacks"}}


async def test_a_field_that_the_crd_does_not_have_is_named_and_not_written_again_and_again(bench: Bench) -> None:
    bench.kube.mutate = without_stacks
    stack = Stack(attempt=1, rank=0, ordinal=0, text="File")
    status = STATUS.model_copy(update={"stacks": [stack]})
    assert await bench.look(Plan(status=status, urgent=True)) == ["status at 7"]
    stored = bench.caches.jobs.get(*KEY)
    assert stored is not None
    assert stored.status == STATUS
    assert bench.looks_again(), "the status is to say so"
    await bench.look()
    observed = bench.observed[-1]
    assert observed.job.status == status, "what was decided is not decided again"
    assert observed.status_refused == (
        "the API server drops status.stacks, which its CustomResourceDefinition does not have"
    )
    bench.now += timedelta(minutes=9)
    assert await bench.look() == []
    bench.kube.mutate = lambda raw: raw
    bench.now += timedelta(minutes=2)
    assert await bench.look() == ["status at 101"]
    await bench.look()
    assert bench.observed[-1].status_refused == ""


def test_what_is_stored_in_other_words_was_not_dropped() -> None:
    sent = {"a": 1, "b": [{"c": 1, "d": 2}, {"c": 3}], "e": {"f": {}}, "g": [1, 2]}
    assert dropped_fields(sent, {"a": 1.0, "b": [{"c": 1, "d": 2}, {"c": 3}], "e": {"f": {}}, "g": [2]}, "s") == []
    assert dropped_fields(sent, {"b": [{"c": 1}, {"c": 3}], "e": {}}, "s") == ["s.a", "s.b[0].d", "s.e.f", "s.g"]
    assert dropped_fields(sent, None, "s") == ["s.a", "s.b", "s.e", "s.g"]


async def test_a_status_that_another_process_wrote_counts_before_the_one_that_was_refused(bench: Bench) -> None:
    bench.kube.refuse_status = refuse_loss
    await bench.look(Plan(status=STATUS, urgent=True))
    bench.job(version="200", status=DDPJobStatus(attempt=4))
    await bench.look()
    assert bench.observed[-1].job.status == DDPJobStatus(attempt=4)


async def test_a_status_of_a_term_that_is_over_is_neither_written_in_part_nor_acted_on(bench: Bench) -> None:
    fell = Invalid("status: leaderEpoch must not fall", fields=(("status", "leaderEpoch must not fall"),))
    bench.kube.refuse_status = lambda _: fell
    assert await bench.look(Plan(status=STATUS, urgent=True, actions=pods(1))) == ["refused status"]
    await bench.look()
    assert bench.observed[-1].job.status is None


async def test_the_pods_that_show_a_jobs_end_stay_until_its_status_does(bench: Bench) -> None:
    ended = replace(pod_of("digits-a0-0", owner="job-uid"), phase="Succeeded")
    bench.caches.pods.seen(ended)
    bench.caches.pods.seen(pod_of("digits-a0-1", owner="job-uid"))
    succeeded = Condition(
        type=ConditionType.SUCCEEDED, status="True", last_transition_time=NOW, reason="R", message="m"
    )
    status = STATUS.model_copy(update={"conditions": [succeeded]})
    deletions = tuple(DeletePod(name, f"{name}-uid") for name in ("digits-a0-0", "digits-a0-1"))
    bench.kube.refuse_status = lambda _: Forbidden("denied")
    requests = await bench.look(Plan(status=status, urgent=True, actions=deletions))
    assert requests == ["refused status", "delete pods digits-a0-1 digits-a0-1-uid"]
    bench.kube.refuse_status = lambda _: None
    bench.now += timedelta(seconds=61)
    requests = await bench.look(Plan(actions=deletions[:1]))
    assert requests == ["status at 7", "delete pods digits-a0-0 digits-a0-0-uid"]
