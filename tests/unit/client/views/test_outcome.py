"""The last lines about a job."""

from cli_jobs import FAILED, RUNNING, SUCCEEDED, job, text_of

from ddpjob.views.outcome import outcome_lines


def test_the_end_of_a_failed_job_shows_the_last_of_the_traceback() -> None:
    shown = text_of(outcome_lines(job(**FAILED)))
    assert "digits has failed after 1m: MaxRestartsExceeded" in shown
    assert "ValueError: bad batch" in shown
    assert "ddpjob why digits -n team" in shown


def test_the_end_of_a_successful_job_is_one_line() -> None:
    assert [line.text for line in outcome_lines(job(**SUCCEEDED))] == ["digits has succeeded after 38s, loss 0.01"]


def test_a_job_that_goes_on_has_no_end() -> None:
    assert outcome_lines(job(**RUNNING)) == []
