"""How far an attempt is."""

import pytest

from ddpjob_core.api import DDPJobStatus
from ddpjob_core.api.columns import Summary
from ddpjob_core.api.status import Nodes, Phase, Progress
from ddpjob_core.observations.progress import current_progress
from ddpjob_core.status.summary import summarize

LEFT = Progress(
    attempt=0,
    epoch=7,
    total_epochs=20,
    step=210,
    total_steps=600,
    percent=35,
    loss=0.1,
    eta_seconds=38,
    samples_per_second=1234.0,
)


@pytest.mark.parametrize(
    ("saved", "columns"),
    [(None, ("", "")), (210, ("7/20", "210/600")), (180, ("", "180/600"))],
)
def test_before_its_first_report_an_attempt_is_as_far_as_the_checkpoint_that_it_resumes_from(
    saved: int | None, columns: tuple[str, str]
) -> None:
    known = LEFT.model_copy(update={"last_checkpoint_step": saved})
    status = DDPJobStatus(
        phase=Phase.RUNNING, attempt=1, nodes=Nodes(desired=2, ready=2), progress=known, summary=Summary(loss="0.1")
    )
    shown = summarize(status, "0.1")
    assert (shown.epoch, shown.step) == columns
    assert (shown.loss, shown.eta, shown.speed) == ("", "", "")


def test_the_percent_of_an_attempt_that_resumes_is_that_of_its_checkpoint() -> None:
    known = LEFT.model_copy(update={"last_checkpoint_step": 180})
    assert current_progress(DDPJobStatus(attempt=1, progress=known)).percent == 30
    assert current_progress(DDPJobStatus(attempt=0, progress=known)).percent == 35
