"""`ddpjob`, `kubectl ddpjob` and the example of the Python API, as a user runs them, where trainings really run."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml
from jobs import TORCH_IMAGE, ddpjob, program, scripted
from kubectl import Kubectl, wait_until

BIN = Path(sys.executable).parent
DDPJOB = str(BIN / "ddpjob")
EXAMPLE = Path(__file__).parents[2] / "manifests/examples/notebook.py"
TRAIN = """
import os, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
said = f"rank {dist.get_rank()} of {dist.get_world_size()} sum {total.item():.0f} args {sys.argv[1:]}"
# In one piece: the ranks of a node write into one log.
sys.stdout.write(said + "\\n")
sys.stdout.flush()
dist.barrier()
os._exit(0)
"""
FAIL = """
import os, torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 1:
    raise ValueError("bad batch")
dist.barrier()
"""


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run an installed program that is to end well."""
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "DDPJOB_IMAGE": TORCH_IMAGE}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def test_a_script_is_run_watched_explained_and_cleared_away_from_the_command_line(
    kubectl: Kubectl, tmp_path: Path
) -> None:
    place = ("-n", kubectl.namespace)
    once = {"maxRestarts": 0, "maxProcessRestarts": 0}
    # These take their time while the others run.
    kubectl.apply(
        program("fails", FAIL),
        scripted("fails", config_map="fails", restart=once),
        ddpjob("noimage", nodes=1, trainer={"image": "nosuch/image:1", "script": "x.py"}),
    )
    script = tmp_path / "train.py"
    script.write_text(TRAIN)

    options = ("--nodes", "2", "--procs-per-node", "2", "--name", "works", "--logs")
    done = run(DDPJOB, "run", *place, *options, str(script), "--lr", "0.1")
    assert re.search(r"rank 0 of 4 sum 6 args \['--lr', '0.1'\]", done.stdout)
    assert "created DDPJob" in done.stderr
    assert "works has succeeded" in done.stderr
    logs = run(DDPJOB, "logs", *place, "works").stdout
    told = {int(rank): pod for pod, rank in re.findall(r"\[(\S+) ranks \S+\] rank (\d) of 4", logs)}
    assert told == {0: "works-a0-0", 1: "works-a0-0", 2: "works-a0-1", 3: "works-a0-1"}
    alone = run(DDPJOB, "logs", *place, "works", "--rank", "3").stdout
    assert "rank 3 of 4" in alone
    assert "rank 0 of 4" not in alone
    followed = run(DDPJOB, "logs", *place, "works", "--follow", "--tail", "1").stdout.splitlines()
    assert sorted(line.split("]")[0] for line in followed) == ["[works-a0-0 ranks 0-1", "[works-a0-1 ranks 2-3"]
    # As a plug-in of kubectl.
    assert "works" in run(kubectl.program, "ddpjob", "status", *place).stdout

    kubectl.wait_for_phase("fails", "Failed")
    why = run(DDPJOB, "why", *place, "fails").stdout
    assert "rank 1 exited with code 1: ValueError: bad batch" in why
    assert 'raise ValueError("bad batch")' in why
    assert "pod fails-a0-1" in why
    assert "ddpjob logs fails" in why

    def image_is_blamed() -> bool:
        checks = subprocess.run(
            [DDPJOB, "doctor", *place, "-o", "json", "noimage"], capture_output=True, text=True, check=False
        )
        found = {check["name"]: check for check in json.loads(checks.stdout)}
        blamed = found.get("Image", {}).get("outcome") == "FAIL"
        assert not blamed or (checks.returncode == 1 and "nosuch/image:1" in found["Image"]["message"]), found
        return blamed

    wait_until(image_is_blamed, "the doctor to blame the image", 60, lambda: kubectl.story("noimage"))
    sound = run(DDPJOB, "doctor", *place, "-o", "json").stdout
    assert {check["name"]: check["outcome"] for check in json.loads(sound)}["Operator's health"] == "OK"

    run(DDPJOB, "delete", *place, "works", "fails", "noimage", "--yes")
    wait_until(
        lambda: not [each for each in kubectl.list("configmaps") if each["metadata"]["name"].startswith("works")],
        "the script to go with its job",
    )


def test_logs_wait_for_a_pod_without_a_node_and_lose_no_line(kubectl: Kubectl, tmp_path: Path) -> None:
    place = ("-n", kubectl.namespace)
    gated = {"spec": {"schedulingGates": [{"name": "ddpjob.dev/test"}]}}
    source = "for line in range(1000): print(f'line {line}', flush=True)"
    manifest = tmp_path / "gated.yaml"
    documents = [program("gated", source), scripted("gated", config_map="gated", nodes=1, template=gated)]
    manifest.write_text(yaml.safe_dump_all(documents))
    with ThreadPoolExecutor() as background:
        whole = background.submit(run, DDPJOB, "run", *place, "--logs", "-f", str(manifest))
        wait_until(lambda: kubectl.list("pods"), "the pod", 60)
        followed = background.submit(run, DDPJOB, "logs", *place, "gated", "--follow")
        assert "there is no output yet" in run(DDPJOB, "logs", *place, "gated").stderr
        kubectl("patch", "pod", "gated-a0-0", "--type=merge", "-p", '{"spec": {"schedulingGates": null}}')
        lines = [f"line {line}" for line in range(1000)]
        for shown in (whole.result().stdout, followed.result().stdout):
            assert [line for line in shown.splitlines() if line.startswith("line")] == lines


def test_the_example_of_the_python_api_runs(kubectl: Kubectl, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    shown = run(sys.executable, str(EXAMPLE), str(script), kubectl.namespace).stdout
    assert "Succeeded 2/2" in shown
    assert "rank 1: rank 1 of 2 sum 1" in shown
    assert "succeeded after 0 restarts" in shown
    assert kubectl.list("ddpjobs") == []
