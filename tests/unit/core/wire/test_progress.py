"""What a program may report of its progress."""

import json
import math
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from ddpjob_core.api.status import Progress
from ddpjob_core.wire.fields import Fields
from ddpjob_core.wire.progress import parse_progress
from ddpjob_core.wire.report import parse_report

NOW = datetime(2026, 1, 1, tzinfo=UTC)


values = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.lists(st.integers(), max_size=2)
)


FIELDS = [
    "epoch",
    "totalEpochs",
    "step",
    "totalSteps",
    "loss",
    "lossText",
    "samplesPerSecond",
    "etaSeconds",
    "lastStepTime",
    "lastCheckpointStep",
]


@given(st.dictionaries(st.sampled_from(FIELDS), values))
def test_whatever_a_program_reports_becomes_a_status_that_json_can_hold(raw: dict[str, object]) -> None:
    progress, loss_text = parse_progress(Fields(raw), NOW)
    wire = json.loads(json.dumps(progress.to_wire(), allow_nan=False))
    assert Progress.model_validate(wire) == progress
    assert len(loss_text) <= 16


def test_numbers_and_times_beyond_all_bounds_count_as_missing() -> None:
    report = parse_report('{"exitCode": 1, "failures": [{"time": 1' + "0" * 400 + "}]}")
    assert report is not None
    assert report.failures[0].time == 0
    assert parse_progress(Fields({"lastStepTime": "0001-01-01T00:00:00+14:00"}), NOW)[0].last_step_time is None


def test_nan_is_shown_as_text_and_left_out_as_a_number() -> None:
    progress, text = parse_progress(Fields({"loss": None, "lossText": "nan", "step": 3}), NOW)
    assert (progress.loss, text) == (None, "nan")
    assert parse_progress(Fields({"loss": math.nan}), NOW)[0].loss is None


def test_percent_never_exceeds_a_hundred() -> None:
    assert parse_progress(Fields({"step": 12, "totalSteps": 10}), NOW)[0].percent == 100
