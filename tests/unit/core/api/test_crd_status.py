"""A status always fits its own schema, whatever a program or a kubelet says."""

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ddpjob_core.api.columns import Summary
from ddpjob_core.api.crd import structural_schema
from ddpjob_core.api.status import DDPJobStatus, Failure, Nodes, Progress
from ddpjob_core.status.summary import summarize
from ddpjob_core.wire.fields import Fields
from ddpjob_core.wire.progress import parse_progress

NOW = datetime(2026, 1, 1, tzinfo=UTC)
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


def misfits(path: str, value: Any, schema: dict[str, Any]) -> list[str]:
    if isinstance(value, dict):
        return [
            each for key, inner in value.items() for each in misfits(f"{path}.{key}", inner, properties(schema)[key])
        ]
    if isinstance(value, list):
        return [each for inner in value for each in misfits(f"{path}[]", inner, schema["items"])]
    if isinstance(value, str):
        return [path] if len(value) > schema.get("maxLength", 64) else []
    if isinstance(value, bool):
        return []
    return [] if schema["minimum"] <= value <= schema["maximum"] else [path]


def properties(schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = schema["properties"]
    return found


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
        "loss": -1e300,
    }


def test_a_text_that_is_too_long_is_cut_and_says_so() -> None:
    failure = Failure(reason="R" * 400, message="m" * 9000, signal="S" * 300)
    assert len(failure.reason) == 253
    assert len(failure.message) == 8192
    assert failure.message.endswith("m…")
    assert failure.signal is not None
    assert len(failure.signal) == 253
    assert Summary(loss="1" * 50).loss == "1" * 39 + "…"
