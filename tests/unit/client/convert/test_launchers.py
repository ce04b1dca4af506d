"""Which lines are launch lines, and which are refused."""

import pytest
from converting import ALL, line, spec

from ddpjob_core.api.errors import UsageProblem
from ddpjob_core.api.launchers import Launcher


@pytest.mark.parametrize(
    ("launch_line", "kind", "program"),
    [
        ("torchrun -m package.train --lr 0.1", "module", "package.train"),
        ("torchrun --module package.train --lr 0.1", "module", "package.train"),
        ("torchrun --nproc-per-node 1 'a b.py' --lr 0.1", "script", "a b.py"),
        ("python -m torch.distributed.run -m package.train --lr 0.1", "module", "package.train"),
        ("python3.11 -m torch.distributed.launch --use-env train.py --lr 0.1", "script", "train.py"),
        ("/opt/venv/bin/python -mtorch.distributed.run train.py --lr 0.1", "script", "train.py"),
        ("/opt/venv/bin/torchrun train.py --lr 0.1", "script", "train.py"),
        ("nohup time torchrun train.py --lr 0.1 > out.log 2>&1 &", "script", "train.py"),
        ("A=1 exec torchrun train.py --lr 0.1", "script", "train.py"),
        ("bash -lc 'cd x && torchrun train.py --lr 0.1'", "script", "train.py"),
        ("mpirun -np 2 --map-by ppr:1:node torchrun train.py --lr 0.1", "script", "train.py"),
        ("numactl --cpunodebind=0 torchrun train.py --lr 0.1", "script", "train.py"),
        ("LR=0.1; torchrun train.py --lr ${LR}", "script", "train.py"),
        ('ARGS=(--lr 0.1); torchrun train.py "${ARGS[@]}"', "script", "train.py"),
        ("if [ -f x ]; then torchrun train.py --lr 0.1; fi", "script", "train.py"),
        ("cat <<END\ntorchrun no.py\nEND\ntorchrun train.py --lr 0.1 # torchrun no.py", "script", "train.py"),
    ],
)  # fmt: skip
def test_torchrun_is_found_however_it_is_started(launch_line: str, kind: str, program: str) -> None:
    found = spec(line(launch_line))
    assert found["trainer"][kind] == program
    assert found["trainer"]["args"] == ["--lr", "0.1"]
    assert "launcher" not in found


def test_a_line_may_come_word_by_word() -> None:
    assert spec(line("torchrun", "--nproc-per-node", "2", "train.py", "a b", "$HOME"))["trainer"]["args"] == [
        "a b",
        "$HOME",
    ]


@pytest.mark.parametrize(
    ("launch_line", "problem"),
    [
        ("torchrun --nope train.py", "script:1: torchrun: unrecognized arguments: --nope"),
        ("torchrun --nnodes", "expected 1 argument"),
        ("torchrun --nnodes=2", "script:1: spec.trainer.script: torchrun has no program"),
        ("torchrun --nnodes=two train.py", "script:1: spec.nodes: --nnodes=two"),
        ("torchrun --nnodes=0 train.py", "spec.nodes: --nnodes=0: a job has at least 1 node"),
        ("torchrun \\\n --nnodes=$N train.py", "script:2: spec.nodes: --nnodes=$N"),
        ("torchrun \\\n --nnodes=20000 train.py", "script:2: spec.nodes: must be at most"),
        ("torchrun --nproc-per-node=many train.py", "spec.procsPerNode: --nproc-per-node=many"),
        ("torchrun --nproc-per-node=0 train.py", "spec.procsPerNode: must be a number from 1 to 256"),
        ("torchrun --no-python ./train.sh", "--no-python: ./train.sh is not a Python program"),
        ("torchrun -m not-a-module", "spec.trainer.module"),
        ("torchrun 'train.py", "script:1: the quote ' is not closed"),
        ("torchrun $(cat train.py", "script:1: the bracket ( is not closed"),
        ("accelerate launch train.py", "a DDPJob does not start the launcher accelerate"),
        ("mpirun -np 2 ./a.out", "mpirun starts ./a.out, which is not a Python program"),
        ("mpirun -np 2", "mpirun has no program"),
        ("mpirun -np two python x.py", "spec.procsPerNode: -np two"),
        ("mpirun --unheard-of python x.py", "unrecognized arguments: --unheard-of"),
        ("echo hello", "no launch line found"),
        ("python -c 'print(1)'", "no launch line found"),
        ("", "no launch line found"),
    ],
)
def test_a_line_that_no_job_can_stand_for_is_refused_with_its_place(launch_line: str, problem: str) -> None:
    with pytest.raises(UsageProblem) as refused:
        line(launch_line)
    assert problem in str(refused.value)


def test_a_name_that_is_none_is_refused_and_one_of_a_script_made_right() -> None:
    with pytest.raises(UsageProblem, match=r"metadata\.name"):
        line("torchrun train.py", name="My_Job")
    converted = line("torchrun /some/where/My_Train.py", namespace="team")
    assert converted.documents[0].content["metadata"] == {"name": "my-train", "namespace": "team"}


@pytest.mark.parametrize("launcher", sorted(ALL.launchers))
def test_a_launcher_is_refused_in_a_sentence_as_long_as_the_api_has_none(launcher: str) -> None:
    lines = {
        "torchrun": "torchrun x.py",
        "python": "python x.py",
        "mpirun": "mpirun -np 1 python x.py",
        "torch.distributed.launch": "python -m torch.distributed.launch x.py",
    }
    if launcher in {known.value for known in Launcher}:
        assert spec(line(lines[launcher])).get("launcher", "torchrun") == launcher
    else:
        with pytest.raises(UsageProblem, match=f"does not support the launcher {launcher}, only"):
            line(lines[launcher])
