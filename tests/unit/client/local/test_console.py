"""What a terminal shows."""

import io
from pathlib import Path

from local_jobs import manifest_of

from ddpjob.local.console import Console, what_runs, without_effect
from ddpjob_core.api.status import DDPJobStatus


def test_what_has_no_effect_without_a_cluster_is_listed() -> None:
    spec = manifest_of(
        trainer={"image": "i", "script": "a", "resources": {"limits": {"cpu": 1}}},
        template={"spec": {"nodeSelector": {"a": "b"}, "containers": [{"name": "trainer"}, {"name": "side"}]}},
    ).spec
    assert without_effect(spec) == [
        "spec.trainer.image",
        "spec.trainer.resources (except for GPUs and procsPerNode)",
        "spec.template.spec.nodeSelector",
        "spec.template.spec.containers other than the trainer",
    ]
    assert without_effect(manifest_of().spec) == ["spec.trainer.image"]


def test_the_start_says_what_will_run_with_whose_rights_and_which_folders_of_the_machine_it_uses() -> None:
    volumes = [{"name": "data", "hostPath": {"path": "/srv\x1b[2J"}}, {"name": "other", "emptyDir": {}}]
    spec = manifest_of(
        trainer={"image": "i", "module": "team.train", "args": ["--epochs", "a b\x1b]52;c;x\x07"]},
        template={"spec": {"volumes": volumes}},
    ).spec
    assert what_runs(spec, Path("/work")) == (
        "it runs `python -m team.train --epochs 'a b'` in /work as your own user, not in a container; "
        "of this machine it mounts /srv"
    )
    command = manifest_of(trainer={"image": "i", "command": ["sh", "-c", "x" * 5_000]}).spec
    assert what_runs(command, Path("/work")).startswith("it runs `sh -c xxx")
    assert len(what_runs(command, Path("/work"))) < 600
    script = manifest_of(trainer={"image": "i", "script": "a.py", "workingDir": "/w"}).spec
    assert what_runs(script, Path("/work")) == "it runs `python a.py` in /w as your own user, not in a container"


def test_the_state_of_a_job_is_one_line_which_is_not_repeated() -> None:
    status = {
        "phase": "Running",
        "nodes": {"desired": 2, "ready": 2},
        "attempt": 1,
        "progress": {"step": 1, "totalSteps": 9},
        "summary": {"nodes": "2/2", "step": "1/9"},
    }
    err = io.StringIO()
    console = Console(err=err)
    for restarts in (1, 2):
        console.status(DDPJobStatus.model_validate({**status, "restarts": {"process": restarts}}))
    assert err.getvalue() == "ddpjob: Running  2/2 nodes  attempt 1  step 1/9\n"


def test_what_the_terminal_has_no_character_for_is_shown_as_its_code() -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = Console(out=out, err=out)
    console.output("digits-a0-0", "loss \u2193")
    console.event("Normal", "Said", "\u2713")
    assert out.buffer.getvalue() == b"loss \\u2193\nddpjob: Said: \\u2713\n"  # type: ignore[attr-defined]
