"""The last lines about a job."""

from cli_jobs import FAILED, LATER, RUNNING, SUCCEEDED, condition, job, text_of

from ddpjob.views.outcome import outcome_lines
from ddpjob.views.progress import progress_line
from ddpjob.views.status import TABLE_HEAD, job_row, status_lines
from ddpjob.views.story import story_lines, story_of
from ddpjob.views.text import Tone, tone_of


def test_the_end_of_a_failed_job_shows_the_last_of_the_traceback() -> None:
    shown = text_of(outcome_lines(job(**FAILED)))
    assert "digits has failed after 1m: MaxRestartsExceeded" in shown
    assert "ValueError: bad batch" in shown
    assert "ddpjob why digits -n team" in shown


def test_the_end_of_a_successful_job_is_one_line() -> None:
    assert [line.text for line in outcome_lines(job(**SUCCEEDED))] == ["digits has succeeded after 38s, loss 0.01"]


def test_a_job_that_was_not_one_training_is_shown_as_such_wherever_it_is_shown() -> None:
    message = "4 processes were started, but each worked by itself"
    apart = condition("SeparateGroups", "True", "GroupSmallerThanJob", message)
    state = "Succeeded,SeparateGroups"
    of = job(**{**SUCCEEDED, "conditions": [*SUCCEEDED["conditions"], apart], "state": state})
    assert f"digits has succeeded after 38s, loss 0.01, but not as one training: {message}" in text_of(
        outcome_lines(of)
    )
    assert f"But: {message}" in text_of(status_lines(of, LATER))
    assert f"Phase: {state} after 38s" in text_of(status_lines(of, LATER))
    assert job_row(of, LATER)[TABLE_HEAD.index("STATE")] == state
    assert job_row(job(**SUCCEEDED), LATER)[TABLE_HEAD.index("STATE")] == "Succeeded"
    assert progress_line(of.status).startswith(state)
    assert (tone_of(of.status), tone_of(job(**SUCCEEDED).status)) == (Tone.BAD, Tone.GOOD)
    why = text_of(story_lines(story_of(of, [], [], LATER)))
    assert "digits has succeeded, but not as one training" in why
    assert story_of(of, [], [], LATER).tone is Tone.BAD
    assert f"GroupSmallerThanJob: {message}" in why


def test_a_job_that_goes_on_has_no_end() -> None:
    assert outcome_lines(job(**RUNNING)) == []
