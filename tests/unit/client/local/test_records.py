"""What is kept of jobs, so that they can be resumed."""

from pathlib import Path

import pytest
from local_jobs import manifest_of

from ddpjob.local.errors import LocalError
from ddpjob.local.records import Records, default_home, job_to_resume, left_unfinished


def test_the_newest_unfinished_job_of_the_same_spec_is_resumed() -> None:
    asked = manifest_of().job
    left = {**asked, "spec": {**asked["spec"], "suspend": True}, "status": {"phase": "Suspended"}}
    newer, ended = {**left, "newer": True}, {**left, "status": {"phase": "Succeeded"}}
    another = manifest_of(nodes=3).job
    assert job_to_resume([left, newer, ended, another], asked) == (newer, [another])
    assert job_to_resume([ended, another], asked) == (None, [another])


def test_a_job_is_run_by_one_process_at_a_time(tmp_path: Path) -> None:
    records = Records(tmp_path, "default", "digits")
    with records.held(), pytest.raises(LocalError, match=r"digits is already running, as process \d+"), records.held():
        pass


def test_jobs_are_kept_in_the_order_in_which_they_were_created(tmp_path: Path) -> None:
    records = Records(tmp_path, "default", "digits")
    jobs = [{"metadata": {"uid": uid, "creationTimestamp": f"2026-01-0{uid[1]}T00:00:00Z"}} for uid in ("b1", "a2")]
    for job in reversed(jobs):
        records.save(job)
    assert records.left() == jobs
    (records.folder / "b1/job.json").write_text("{")
    (records.folder / "moved").mkdir()
    (records.folder / "moved/job.json").write_text((records.folder / "a2/job.json").read_text())
    assert records.left() == jobs[1:]


def test_an_unfinished_job_is_named_with_what_it_runs() -> None:
    status = {"progress": {"step": 7}}
    job = manifest_of(trainer={"image": "i", "script": "/a/train.py", "args": ["50"]}).job
    job["metadata"]["uid"] = "u1"
    assert left_unfinished([{**job, "status": status}], Path("/jobs")) == (
        "digits was left unfinished at step 7, running /a/train.py 50: run that command to resume it, "
        "or delete /jobs/u1"
    )


def test_the_place_of_what_is_kept_can_be_chosen() -> None:
    assert default_home({"DDPJOB_HOME": "/d", "XDG_STATE_HOME": "/s"}) == Path("/d")
    assert default_home({"XDG_STATE_HOME": "/s"}) == Path("/s/ddpjob")
    assert default_home({}) == Path.home() / ".local/state/ddpjob"
