"""A status always fits its own schema, whatever a program or a kubelet says."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from misfits import misfits
from pydantic import ValidationError

from ddpjob_core.api.columns import Summary
from ddpjob_core.api.crd import structural_schema
from ddpjob_core.api.status import Condition, ConditionType, DDPJobStatus, Failure, Nodes, Progress, Restarts
from ddpjob_core.status.bounds import within_bounds
from ddpjob_core.status.summary import summarize
from ddpjob_core.wire.fields import Fields
from ddpjob_core.wire.progress import parse_progress

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WRITTEN = "2026-01-01T00:00:00Z"
CONDITION = Condition(
    type=ConditionType.TRAINING, status="True", last_transition_time=NOW, reason="StepsReported", message="m"
)
SCHEMA = structural_schema(DDPJobStatus, defaults=False)
KEYS = ("epoch", "totalEpochs", "step", "totalSteps", "loss", "samplesPerSecond", "etaSeconds", "lastCheckpointStep")
VALUES = st.one_of(
    st.integers(),
    st.integers(min_value=-(2**70), max_value=2**70),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=50),
    st.none(),
    st.booleans(),
)


@given(st.dictionaries(st.sampled_from(KEYS), VALUES), VALUES)
def test_whatever_a_program_reports_can_be_written(raw: dict[str, Any], loss_text: object) -> None:
    progress, loss = parse_progress(Fields({**raw, "lossText": loss_text}), NOW)
    status = DDPJobStatus(progress=progress, nodes=Nodes(desired=10_000, ready=10_000))
    wire = status.model_copy(update={"summary": summarize(status, loss)}).to_wire()
    assert misfits("status", wire, SCHEMA) == []
    assert DDPJobStatus.model_validate(wire).to_wire() == wire, "what is read back is what was written"


def test_numbers_outside_their_bounds_are_brought_to_the_nearest() -> None:
    progress = Progress(epoch=-1, step=2**60, eta_seconds=2**80, samples_per_second=-3.0, loss=-1e308)
    assert progress.to_wire() == {
        "epoch": 0,
        "step": 2**53,
        "etaSeconds": 2**53,
        "samplesPerSecond": 0.0,
        "loss": -1e18,
    }


def test_a_text_that_is_too_long_is_cut_and_says_so() -> None:
    failure = Failure(reason="R" * 400, message="m" * 9000, signal="S" * 300)
    assert len(failure.reason) == 253
    assert len(failure.message) == 8192
    assert failure.message.endswith("m…")
    assert failure.signal is not None
    assert len(failure.signal) == 253
    assert Summary(loss="1" * 50).loss == "1" * 39 + "…"


@pytest.mark.parametrize(
    ("update", "path", "kept"),
    [
        ({"restarts": Restarts().model_copy(update={"process": 2**40})}, "restarts.process", 2**31 - 1),
        ({"procs_per_node": -3}, "procsPerNode", 0),
        ({"attempt": 10**12}, "attempt", 2**31 - 1),
        ({"progress": Progress().model_copy(update={"loss": float("nan"), "step": 3})}, "progress.loss", None),
        ({"progress": Progress().model_copy(update={"samples_per_second": -1e300})}, "progress.samplesPerSecond", 0),
        ({"summary": Summary().model_copy(update={"step": "9" * 80})}, "summary.step", "9" * 39 + "…"),
        ({"nodes": Nodes(desired=1).model_copy(update={"succeeded_ordinals": "all"})}, "nodes.succeededOrdinals", None),
        ({"nodes": Nodes(desired=1).model_copy(update={"desired": None})}, "nodes", None),
        (
            {"restarts": Restarts().model_copy(update={"recent_times": [NOW] * 1001})},
            "restarts.recentTimes",
            [WRITTEN] * 1000,
        ),
        (
            {"conditions": [CONDITION, CONDITION.model_copy(update={"status": "Perhaps"})]},
            "conditions",
            [CONDITION.to_wire()],
        ),
        ({"conditions": [CONDITION, CONDITION]}, "conditions", [CONDITION.to_wire()]),
        (
            {"failure": Failure(reason="R", message="m").model_copy(update={"consequences": ["c"] * 20})},
            "failure.consequences",
            ["c"] * 16,
        ),
        (
            {"failure": Failure(reason="R", message="m").model_copy(update={"exit_code": -(2**40)})},
            "failure.exitCode",
            1 - 2**31,
        ),
    ],
)
def test_a_status_is_brought_into_the_bounds_of_the_crd_whatever_it_was_made_of(
    update: dict[str, object], path: str, kept: object
) -> None:
    wire: Any = within_bounds(DDPJobStatus(attempt=3, pods_created=True).model_copy(update=update)).to_wire()
    assert misfits("status", wire, SCHEMA) == []
    assert wire["podsCreated"] is True
    for key in path.split("."):
        wire = wire.get(key) if isinstance(wire, dict) else None
    assert wire == kept


def test_a_status_within_its_bounds_is_left_as_it_is() -> None:
    status = DDPJobStatus(attempt=3, conditions=[CONDITION], nodes=Nodes(desired=2, succeeded_ordinals="0-1"))
    assert within_bounds(status) is status


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "9999-12-31T00:00:00Z"])
def test_a_moment_to_which_no_span_can_be_added_is_none(moment: str) -> None:
    with pytest.raises(ValidationError):
        DDPJobStatus.model_validate({"startTime": moment})


@pytest.mark.parametrize("moment", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
def test_of_a_clock_that_is_centuries_wrong_a_moment_is_kept_that_can_be_counted_from(moment: datetime) -> None:
    status = DDPJobStatus(start_time=moment)
    assert status.start_time is not None
    assert status.start_time + timedelta(days=36500) > status.start_time - timedelta(days=36500)
