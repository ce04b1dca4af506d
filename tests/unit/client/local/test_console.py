"""What a terminal shows."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from local_jobs import manifest_of

from ddpjob.local.console import Console, without_effect
from ddpjob.local.what_runs import what_runs
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


def shown(config_maps: Mapping[str, Mapping[str, str]] | None = None, **spec: Any) -> list[str]:
    return list(what_runs(manifest_of(host_paths=[Path("/")], **spec).spec, Path("/work"), config_maps or {}))


def test_the_start_says_what_will_run_with_whose_rights_and_which_folders_of_the_machine_it_uses() -> None:
    volumes = [{"name": "data", "hostPath": {"path": "/srv\x1b[2J"}}, {"name": "other", "emptyDir": {}}]
    started = "it runs `python -m team.train --epochs 'a b'`"
    assert shown(
        trainer={"image": "i", "module": "team.train", "args": ["--epochs", "a b\x1b]52;c;x\x07"]},
        template={"spec": {"volumes": volumes}},
    ) == [
        f"{started} in /work as your own user, not in a container; of this machine it mounts /srv",
    ]
    assert shown(trainer={"image": "i", "script": "a.py", "workingDir": "/w"}) == [
        "it runs `python a.py` in /w as your own user, not in a container"
    ]


def test_a_command_that_is_too_long_to_be_shown_says_that_it_is_cut_and_where_the_rest_is() -> None:
    (line,) = shown(trainer={"image": "i", "command": ["sh", "-c", f"{'x' * 5_000}; rm -rf ~"]})
    assert line.startswith("it runs `sh -c 'xxx")
    assert "x… (cut: `ddpjob run --local --dry-run` shows all of it)` in /work" in line
    assert len(line) < 600


def test_the_start_names_all_variables_of_the_manifest_and_shows_those_that_load_other_code() -> None:
    container = {
        "name": "trainer",
        "envFrom": [{"configMapRef": {"name": "more"}, "prefix": "LD_"}, {"configMapRef": {"name": "elsewhere"}}],
        "env": [{"name": "PYTHONPATH", "valueFrom": {"configMapKeyRef": {"name": "more", "key": "AUDIT"}}}],
    }
    trainer = {
        "image": "i",
        "script": "a.py",
        "env": [{"name": "LR", "value": "0.1"}, {"name": "PATH", "value": "/e\x1b[2J"}],
    }
    lines = shown({"more": {"AUDIT": "/tmp/a.so"}}, trainer=trainer, template={"spec": {"containers": [container]}})
    assert lines[1:] == [
        "it sets the variables LD_AUDIT, LR, PATH, PYTHONPATH",
        "! LD_AUDIT=/tmp/a.so can make it run other code than this command",
        "! PATH=/e can make it run other code than this command",
        "! PYTHONPATH=/tmp/a.so can make it run other code than this command",
    ]
    many = [{"name": f"A{number}", "value": "1"} for number in range(50)]
    assert "A44 and 10 more: `ddpjob run" in shown(trainer={**trainer, "env": many})[1]


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
