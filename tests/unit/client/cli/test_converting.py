"""ddpjob from-torchrun, from-pbs and from-slurm: the manifest on stdout, what is not carried over on stderr."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from ddpjob.cli.app import app
from ddpjob.manifests.documents import checked_job, read_documents

LINE = "torchrun --nproc-per-node=2 --nnodes=2 --node-rank=0 train.py 50 10"
PBS = "#PBS -N two\n#PBS -q normal\n#PBS -l ncpus=8\ntorchrun --nnodes=2 train.py\ntorchrun --nnodes=2 other.py\n"
SLURM = "#SBATCH -N 2 --ntasks-per-node=4 -p gpu\nsrun python train.py\n"


def run(*words: str, text: str | None = None, env: dict[str, str | None] | None = None) -> Any:
    return CliRunner().invoke(app, list(words), input=text, env=env or {"DDPJOB_IMAGE": "img"})


def test_a_launch_line_becomes_a_manifest_that_can_be_submitted() -> None:
    done = run("from-torchrun", "--name", "mine", "-n", "team", "--gpus", "2", LINE)
    assert done.exit_code == 0
    job = checked_job(read_documents(done.stdout, "stdout"))
    assert job.content["metadata"] == {"name": "mine", "namespace": "team"}
    assert job.content["spec"]["nodes"] == 2
    assert job.content["spec"]["trainer"]["resources"] == {"limits": {"nvidia.com/gpu": 2}}
    assert "the command line:1: --node-rank=0: not needed: the ordinal of a pod" in done.stderr


def test_the_words_of_a_line_keep_their_options() -> None:
    done = run("from-torchrun", *LINE.split(), "--name", "x")
    assert done.exit_code == 0
    assert yaml.safe_load(done.stdout)["spec"]["trainer"]["args"] == ["50", "10", "--name", "x"]


def test_json_is_a_list_that_kubectl_takes() -> None:
    done = run("from-torchrun", "-o", "json", LINE)
    made = json.loads(done.stdout)
    assert (made["kind"], [item["metadata"]["name"] for item in made["items"]]) == ("List", ["train"])


def test_a_script_of_pbs_becomes_a_document_for_each_launch_line(tmp_path: Path) -> None:
    script = tmp_path / "job.pbs"
    script.write_text(PBS)
    done = run("from-pbs", str(script))
    assert done.exit_code == 0
    documents = read_documents(done.stdout, "stdout")
    assert [document.name for document in documents] == ["two-1", "two-2"]
    assert all(checked_job([document]).content["spec"]["trainer"]["resources"] for document in documents)
    assert f"{script}:2: #PBS -q normal: not carried over" in done.stderr
    assert "ddpjob run -f two-1.yaml && ddpjob run -f two-2.yaml" in done.stderr


def test_a_script_of_slurm_may_come_on_standard_input() -> None:
    done = run("from-slurm", "-", text=SLURM)
    assert done.exit_code == 0
    assert checked_job(read_documents(done.stdout, "stdout")).content["spec"]["procsPerNode"] == 4
    assert "standard input:1: #SBATCH -p gpu: not carried over" in done.stderr


def test_a_hostfile_that_is_here_is_read(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("a slots=2\nb slots=2\n")
    done = run("from-torchrun", f"mpirun --hostfile {hosts} torchrun --nnodes=2 train.py")
    assert (done.exit_code, "the job starts torchrun on every node" in done.stderr) == (0, True)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("from-torchrun", "torchrun --nnodes=$N train.py"), "the command line:1: spec.nodes: --nnodes=$N"),
        (("from-torchrun", LINE, "--gpus", "2"), "--gpus comes after the launch line"),
        (("from-torchrun", "ls"), "no launch line found"),
        (("from-pbs", "no-such-file"), "no-such-file cannot be read"),
        (("from-slurm", "no-such-file"), "no-such-file cannot be read"),
    ],
)
def test_what_cannot_be_converted_ends_with_2_and_a_sentence(words: tuple[str, ...], problem: str) -> None:
    done = run(*words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert problem in done.stderr


def test_an_image_is_needed_as_for_run() -> None:
    done = run("from-torchrun", LINE, env={"DDPJOB_IMAGE": None})
    assert done.exit_code == 2
    assert "--image is missing" in done.stderr


def test_a_script_that_is_not_text_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "job.pbs"
    script.write_bytes(b"\xff")
    assert "is not text" in run("from-pbs", str(script)).stderr
