"""status.summary: the columns as text."""

from ddpjob_core.api import DDPJobStatus
from ddpjob_core.api.status import Nodes, Phase, Progress
from ddpjob_core.status.summary import summarize


def test_the_columns_say_what_the_status_says() -> None:
    progress = Progress(epoch=7, total_epochs=20, step=210, total_steps=600, eta_seconds=38, samples_per_second=1234.0)
    status = DDPJobStatus(phase=Phase.RUNNING, nodes=Nodes(desired=2, ready=2), progress=progress)
    summary = summarize(status, "0.0831")
    assert (summary.nodes, summary.epoch, summary.step, summary.loss, summary.eta, summary.speed) == (
        "2/2",
        "7/20",
        "210/600",
        "0.0831",
        "38s",
        "1.2k/s",
    )


def test_a_job_without_progress_has_empty_columns() -> None:
    summary = summarize(DDPJobStatus(nodes=Nodes(desired=3, ready=1)), "")
    assert (summary.nodes, summary.epoch, summary.step, summary.loss, summary.eta) == ("1/3", "", "", "", "")
