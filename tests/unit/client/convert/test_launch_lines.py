"""Launch lines of the programs that people come with, and the jobs that they become."""

from typing import Any

import pytest
from converting import ALL, about, line, spec, told
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpjob.convert.job import Supported
from ddpjob.convert.torchrun_line import split_endpoint
from ddpjob_core.api.errors import UsageProblem
from ddpjob_core.api.launchers import Launcher
from ddpjob_core.api.spec import Backend

TORCHRUN_000 = (
    "torchrun --nproc-per-node=1 --nnodes=2 --node-rank=0 --rdzv-id=456 --rdzv-backend=c10d "
    "--rdzv-endpoint=10.0.0.1:29603 {} 1000 1000"
)
C10D_29603 = {"backend": "c10d", "port": 29603}
TUTORIAL = "distributed/ddp-tutorial-series"
MULTINODE_001 = """\
torchrun \\
--nproc_per_node=8 \\
--nnodes=2 \\
--node-rank={} \\
--rdzv-id=456 \\
--rdzv-backend=c10d \\
--rdzv-endpoint=[ipv6_address_master_node]:29603 \\
basic_parallelization/distributed/ddp-tutorial-series/multinode.py --total_epochs 50 --save_every 10 --batch_size 32
"""
SPEC_MULTINODE_001 = {
    "nodes": 2,
    "procsPerNode": 8,
    "rendezvous": C10D_29603,
    "trainer": {
        "script": f"basic_parallelization/{TUTORIAL}/multinode.py",
        "args": ["--total_epochs", "50", "--save_every", "10", "--batch_size", "32"],
    },
}
SSH_002 = (
    'torchrun --nnodes=2 --nproc_per_node=4 --node_rank={} --master_addr="<Node1 IP>" --master_port=12355 '
    "/scratch/vp91/$USER/intro-to-pytorch/src/multinode_torchrun.py"
)
SPEC_SSH_002 = {
    "nodes": 2,
    "procsPerNode": 4,
    "rendezvous": {"backend": "static", "port": 12355},
    "trainer": {"script": "/scratch/vp91/$USER/intro-to-pytorch/src/multinode_torchrun.py"},
}
MULTINODE_003 = """\
torchrun --nproc_per_node=4 --nnodes=2 --node_rank={} \\
         --master_addr="10.0.0.1" --master_port=12345 train.py
"""
SPEC_MULTINODE_003 = {
    "nodes": 2,
    "procsPerNode": 4,
    "rendezvous": {"backend": "static", "port": 12345},
    "trainer": {"script": "train.py"},
}
LAUNCH_004 = """\
python3 -m torch.distributed.launch \\
--nproc_per_node=2 --nnodes=2 --node_rank={} \\
--master_addr=104.171.200.62 --master_port=1234 \\
message-passing/main.py \\
--backend=nccl
"""
SPEC_LAUNCH_004 = {
    "nodes": 2,
    "procsPerNode": 2,
    "launcher": "torch.distributed.launch",
    "rendezvous": {"backend": "static", "port": 1234},
    "backend": "nccl",
    "trainer": {"script": "message-passing/main.py", "args": ["--backend=nccl"]},
}
MPIRUN_004 = """\
mpirun -np 4 \\
-H 104.171.200.62:2,104.171.200.182:2 \\
-x MASTER_ADDR=104.171.200.62 \\
-x MASTER_PORT=1234 \\
-x PATH \\
-bind-to none -map-by slot \\
-mca pml ob1 -mca btl ^openib \\
python3 message-passing/main_mpirun.py --backend=nccl
"""


@pytest.mark.usefixtures("whole_api")
@pytest.mark.parametrize(
    ("launch_line", "expected"),
    [
        *(
            (
                TORCHRUN_000.format(script),
                {
                    "nodes": 2,
                    "procsPerNode": 1,
                    "rendezvous": C10D_29603,
                    "trainer": {"script": script, "args": ["1000", "1000"]},
                },
            )
            for script in (
                "multinode_ddp.py",
                "multinode_gpu_ddp.py",
                "pytorch_multinode_ddp_mpi.py",
                "pytorch_multinode_ddp_mpi_gpu.py",
            )
        ),
        *(
            (
                f"python {TUTORIAL}/{script} 50 10",
                {
                    "nodes": 1,
                    "procsPerNode": 1,
                    "launcher": "python",
                    "trainer": {"script": f"{TUTORIAL}/{script}", "args": ["50", "10"]},
                },
            )
            for script in ("single_gpu.py", "multigpu.py")
        ),
        (
            f"torchrun --standalone --nproc_per_node=gpu {TUTORIAL}/multigpu_torchrun.py 50 10",
            {
                "nodes": 1,
                "procsPerNode": "auto",
                "trainer": {"script": f"{TUTORIAL}/multigpu_torchrun.py", "args": ["50", "10"]},
            },
        ),
        *((MULTINODE_001.format(rank), SPEC_MULTINODE_001) for rank in (0, 1)),
        *((SSH_002.format(rank), SPEC_SSH_002) for rank in (0, 1)),
        (
            "torchrun --nproc_per_node=4 train.py",
            {"nodes": 1, "procsPerNode": 4, "trainer": {"script": "train.py"}},
        ),
        (
            "torchrun --nproc_per_node=2 run_with_torchrun.py",
            {"nodes": 1, "procsPerNode": 2, "trainer": {"script": "run_with_torchrun.py"}},
        ),
        *((MULTINODE_003.format(rank), SPEC_MULTINODE_003) for rank in (0, 1)),
        (
            "mpirun -np 4 python run_with_mpirun.py",
            {"nodes": 1, "procsPerNode": 4, "launcher": "mpirun", "trainer": {"script": "run_with_mpirun.py"}},
        ),
        (
            "python run_with_python.py",
            {"nodes": 1, "procsPerNode": 1, "launcher": "python", "trainer": {"script": "run_with_python.py"}},
        ),
        *((LAUNCH_004.format(rank), SPEC_LAUNCH_004) for rank in (0, 1)),
        (
            MPIRUN_004,
            {
                "nodes": 2,
                "procsPerNode": 2,
                "launcher": "mpirun",
                "rendezvous": {"port": 1234},
                "backend": "nccl",
                "trainer": {"script": "message-passing/main_mpirun.py", "args": ["--backend=nccl"]},
            },
        ),
    ],
)
def test_every_launch_line_of_the_tutorials_becomes_the_job_that_it_means(
    launch_line: str, expected: dict[str, Any]
) -> None:
    assert spec(line(launch_line, supported=ALL)) == expected


def test_the_pattern_of_a_launch_line_is_refused_until_its_number_of_nodes_is_filled_in() -> None:
    pattern = (
        "torchrun --nproc-per-node=1 --nnodes=<number_of_nodes> --node-rank=<rank_of_node> --rdzv-id=456 "
        "--rdzv-backend=c10d --rdzv-endpoint=<rank_0_node>:29603 <code>.py <parameters>"
    )
    with pytest.raises(UsageProblem, match=r"script:1: spec\.nodes: --nnodes=<number_of_nodes>") as refused:
        line(pattern)
    assert refused.value.remedy == "replace it with the number"
    converted = line(pattern.replace("<number_of_nodes>", "2"))
    assert spec(converted)["trainer"] == {"script": "<code>.py", "args": ["<parameters>"]}
    assert "replace it with its value" in about(converted, "<parameters>")


def test_two_lines_for_two_nodes_are_one_job() -> None:
    converted = line(MULTINODE_001.format(0) + MULTINODE_001.format(1))
    assert spec(converted) == SPEC_MULTINODE_001
    assert "one job starts all nodes" in about(converted, "--node-rank=1")


def test_all_that_is_not_carried_over_from_the_first_tutorial_is_told_with_its_text() -> None:
    text = TORCHRUN_000.format("multinode_ddp.py")
    assert told(line(text, gpus=0)) == [
        (1, "--node-rank=0", "not needed: the ordinal of a pod is the rank of its node"),
        (1, "--rdzv-id=456", "not needed: every attempt of the job gets its own ID"),
        (
            1,
            "--rdzv-endpoint=10.0.0.1:29603",
            "the pod of node 0 replaces 10.0.0.1; its port is carried over",
        ),
        (
            1,
            "multinode_ddp.py",
            "the image, or a volume of spec.template, must contain this file; relative to spec.trainer.workingDir",
        ),
    ]


@pytest.mark.usefixtures("whole_api")
def test_what_is_told_has_the_line_that_it_stands_in() -> None:
    found = {text: number for number, text, _ in told(line(MPIRUN_004, supported=ALL))}
    assert found["-x PATH"] == 5
    assert found["-bind-to none"] == found["-map-by slot"] == 6
    assert found["-mca btl ^openib"] == 7


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("--nnodes=3", {"nodes": 3, "rendezvous": {"backend": "static"}}),
        ("--nnodes 1:4", {"nodes": 4, "rendezvous": {"backend": "static"}}),
        ("--nnodes=2:2 --rdzv-backend=c10d", {"nodes": 2, "rendezvous": {"backend": "c10d"}}),
        ("--nproc-per-node=auto", {"procsPerNode": "auto"}),
        ("--nproc_per_node cpu", {"procsPerNode": "auto"}),
        ("--rdzv-backend=static", {"rendezvous": {"backend": "static"}}),
        ("--rdzv_backend c10d", {"rendezvous": {"backend": "c10d"}}),
        ("--rdzv-backend=etcd-v2", {}),
        ("--rdzv-endpoint=[fd00::1]:29603", {"rendezvous": {"port": 29603}}),
        ("--rdzv-endpoint=fd00::1", {}),
        ("--rdzv-endpoint=localhost:0", {}),
        ("--rdzv-endpoint=localhost", {}),
        ("--master-port=80", {}),
        ("--master-port=9401", {}),
        ("--master-port=$PORT", {}),
        ("--rdzv-conf=join_timeout=900,keep_alive_interval=2", {
            "rendezvous": {"timeoutSeconds": 900, "conf": {"keep_alive_interval": "2"}}
        }),
        ("--rdzv-conf is_host=1,timeout=3,odd", {}),
        ("--max-restarts=2", {"restart": {"maxProcessRestarts": 2}}),
        ("--max_restarts 0", {"restart": {"maxProcessRestarts": 0}}),
        ("--rdzv-backend static --max-restarts=2", {"rendezvous": {"backend": "static"}}),
        ("--standalone --nnodes=4", {}),
        ("--role trainer -r 3 --tee=3 --log-dir /tmp/logs --local-addr 10.0.0.2 --start-method spawn --run-path", {}),
        ("--", {}),
    ],
)  # fmt: skip
def test_every_option_of_torchrun_goes_where_it_belongs(option: str, expected: dict[str, Any]) -> None:
    converted = line(f"torchrun {option} train.py --nnodes 9 -m")
    plain = {"nodes": 1, "procsPerNode": 1, "trainer": {"script": "train.py", "args": ["--nnodes", "9", "-m"]}}
    assert spec(converted) == {**plain, **expected}


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--nnodes=1:4", "a job has a fixed size: spec.nodes is the maximum, 4"),
        ("--nproc-per-node=gpu", "give --gpus N"),
        ("--nproc-per-node=cpu", "which follows the CPUs in spec.trainer.resources"),
        ("--nproc-per-node=$N", "N is not known from the script: spec.procsPerNode is auto"),
        ("--rdzv-backend=etcd", "c10d is used instead"),
        ("--rdzv-endpoint=h:0", "port 0 means any free port"),
        ("--rdzv-endpoint=h:99999", "99999 is not a port from 1024 to 65535"),
        ("--master-port=$PORT", "PORT is not known from the script"),
        ("--rdzv-conf=is_host=1", "the pod of node 0 hosts the store"),
        ("--rdzv-conf=timeout=3", "spec.rendezvous.conf does not accept it"),
        ("--rdzv-conf=$CONF", "set it in spec.rendezvous.conf"),
        ("--max-restarts=$M", "not a number"),
        ("--tee 3", "ddpjob logs"),
        ("--redirects 3", "ddpjob logs"),
        ("--log_dir x", "ddpjob logs"),
        ("--role r", "only names the workers in torchrun's log"),
        ("--local-addr a", "by its own name"),
        ("--run-path", "started as a program"),
        ("--start-method fork", "torchrun's default"),
        ("--no-python", "the script is started with Python"),
    ],
)
def test_what_becomes_of_an_option_is_told_with_the_option(option: str, message: str) -> None:
    assert message in about(line(f"torchrun {option} train.py"), option)


def test_options_that_another_one_makes_void_are_told() -> None:
    converted = line("torchrun --standalone --nnodes=4 --rdzv-endpoint=h:29400 train.py")
    assert spec(converted)["nodes"] == 1
    assert "--standalone means one node" in about(converted, "--nnodes=4")
    assert "--standalone means one node" in about(converted, "--rdzv-endpoint")
    converted = line("torchrun --rdzv-backend=static --max-restarts=2 train.py")
    assert "static rendezvous cannot restart" in about(converted, "--max-restarts=2")
    converted = line("torchrun --rdzv-endpoint=h:30000 --master-port=30001 --rdzv-backend=c10d train.py")
    assert spec(converted)["rendezvous"]["port"] == 30000
    assert "port 30001 is not carried over" in about(converted, "--master-port")


def test_nodes_without_a_rendezvous_backend_meet_as_torchrun_lets_them() -> None:
    converted = line("torchrun --nnodes=2 --max-restarts=2 train.py")
    assert spec(converted)["rendezvous"] == {"backend": "static"}
    assert "restart" not in spec(converted)
    assert "with c10d, processes can restart" in about(converted, "no --rdzv-backend")
    assert "rendezvous" not in spec(line("torchrun --nnodes=2 --rdzv-backend=etcd train.py"))


def test_a_port_among_those_of_the_metrics_is_left_out() -> None:
    converted = line("torchrun --nproc-per-node=4 --master-port=9404 train.py")
    assert "rendezvous" not in spec(converted)
    assert "serve metrics there" in about(converted, "port 9404")
    assert spec(line("torchrun --nproc-per-node=3 --master-port=9404 train.py"))["rendezvous"] == {"port": 9404}


def test_a_line_that_says_nothing_of_gpus_is_asked_for_them() -> None:
    assert "give --gpus N if the program uses them" in about(line("torchrun train.py"), "torchrun train.py")
    assert "--gpus" not in about(line("torchrun train.py", gpus=0), "torchrun train.py")


def test_the_devices_of_another_machine_are_not_those_of_a_pod() -> None:
    converted = line("CUDA_VISIBLE_DEVICES=2,3 A=1 torchrun --nproc-per-node=2 train.py", gpus=2)
    assert spec(converted)["trainer"]["env"] == [{"name": "A", "value": "1"}]
    assert "only the GPUs that it requests" in about(converted, "CUDA_VISIBLE_DEVICES=2,3")


def test_gpus_of_the_option_become_resources_and_processes() -> None:
    found = spec(line("torchrun --nproc-per-node=gpu train.py", gpus=4))
    assert found["procsPerNode"] == 4
    assert found["trainer"]["resources"] == {"limits": {"nvidia.com/gpu": 4}}


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


def test_a_backend_that_the_program_is_given_becomes_the_jobs_once_the_api_has_it() -> None:
    assert spec(line("torchrun train.py --backend gloo"))["backend"] == "gloo"
    converted = line("torchrun train.py --dist-backend=nccl", supported=Supported(backends=frozenset({"gloo"})))
    assert "backend" not in spec(converted)
    assert "does not support nccl" in about(converted, "--backend nccl")
    if "nccl" in {known.value for known in Backend}:
        assert spec(line("torchrun train.py --dist-backend=nccl"))["backend"] == "nccl"


@pytest.mark.usefixtures("whole_api")
def test_mpi_is_the_backend_of_mpirun_alone() -> None:
    assert spec(line("mpirun -np 2 python x.py --backend mpi", supported=ALL))["backend"] == "mpi"
    converted = line("torchrun x.py --backend mpi", supported=ALL)
    assert "backend" not in spec(converted)
    assert "only under mpirun" in about(converted, "--backend mpi")


@pytest.mark.usefixtures("whole_api")
class TestPython:
    def test_options_of_the_interpreter_are_carried_over_or_told(self) -> None:
        converted = line("python -u -W ignore train.py", supported=ALL)
        assert spec(converted)["trainer"]["env"] == [{"name": "PYTHONUNBUFFERED", "value": "1"}]
        assert "spec.trainer.env" in about(converted, "-W")

    def test_a_program_that_may_spawn_its_own_processes_is_told_of(self) -> None:
        assert "set spec.procsPerNode to their number" in about(line("python x.py", supported=ALL), "python x.py")

    def test_what_prepares_a_machine_is_no_training(self) -> None:
        converted = line("python -m pip install x; python -m venv v; python train.py", supported=ALL)
        assert spec(converted)["trainer"] == {"script": "train.py"}


@pytest.mark.usefixtures("whole_api")
class TestMpirun:
    @pytest.mark.parametrize(
        ("options", "nodes", "processes"),
        [
            ("-np 4 -H a:2,b:2", 2, 2),
            ("-n 4 --host a,a,b,b", 2, 2),
            ("-H a:4,b:4", 2, 4),
            ("-np 3 -H a:2,b:2", 2, 2),
            ("-np 8 --hostfile hosts", 2, 4),
            ("--hostfile hosts", 2, 3),
            ("-np 8 -hostfile gone", 1, 8),
            ("-np 8 -npernode 4", 2, 4),
            ("-np 8 -ppn 2", 4, 2),
            ("-np 6 --map-by ppr:2:node", 3, 2),
            ("-np $NP", 1, 1),
            ("--allow-run-as-root --oversubscribe -np 2", 1, 2),
        ],
    )
    def test_nodes_and_processes_follow_from_hosts_and_numbers(self, options: str, nodes: int, processes: int) -> None:
        files = {"hosts": "# the nodes\nnode1 slots=3 max_slots=4\nnode2:3\n"}
        found = spec(line(f"mpirun {options} python x.py", files=files, supported=ALL))
        assert (found["nodes"], found["procsPerNode"]) == (nodes, processes)

    def test_variables_are_given_to_the_program_unless_they_are_the_launchers(self) -> None:
        text = "export B=2\nmpirun -x A=1 -x B -x RANK=3 -x D=$UNSET -x LD_LIBRARY_PATH -genv E 5 -np 1 python x.py"
        converted = line(text, supported=ALL)
        assert spec(converted)["trainer"]["env"] == [
            {"name": "A", "value": "1"},
            {"name": "B", "value": "2"},
            {"name": "E", "value": "5"},
        ]
        assert "the launcher sets RANK" in about(converted, "-x RANK=3")
        assert "UNSET is not known" in about(converted, "-x D=$UNSET")
        assert "the image's LD_LIBRARY_PATH" in about(converted, "-x LD_LIBRARY_PATH")

    def test_an_uneven_number_of_processes_is_told(self) -> None:
        converted = line("mpirun -np 3 -H a:2,b:2 python x.py", supported=ALL)
        assert "4 in all" in about(converted, "3 processes on 2 nodes")

    def test_options_of_a_module_behind_it_are_the_programs(self) -> None:
        found = spec(line("mpirun -np 2 python -m pkg.train -m -np 3", supported=ALL))
        assert found["trainer"] == {"module": "pkg.train", "args": ["-m", "-np", "3"]}


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("10.0.0.1:29603", ("10.0.0.1", "29603")),
        ("[fd00::1]:29603", ("[fd00::1]", "29603")),
        ("[fd00::1]", ("[fd00::1]", "")),
        ("fd00::1", ("fd00::1", "")),
        ("host", ("host", "")),
        ("host:", ("host", "")),
    ],
)
def test_an_endpoint_is_taken_apart_at_its_port(endpoint: str, expected: tuple[str, str]) -> None:
    assert split_endpoint(endpoint) == expected


NAMES = st.sampled_from(["train.py", "/srv/my train.py", "a'b.py", 'q".py', "pkg/x.py"])
ARGUMENTS = st.lists(st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=8), max_size=4)


@st.composite
def options(draw: st.DrawFn) -> tuple[list[str], dict[str, Any]]:
    """Options in any order and spelling, and what they come to."""
    nodes, processes = draw(st.integers(1, 10_000)), draw(st.integers(1, 64))
    port, restarts = draw(st.integers(10_000, 65_535)), draw(st.integers(0, 9))
    given_options = draw(
        st.permutations([
            ("nnodes", str(nodes)),
            ("nproc-per-node", str(processes)),
            ("rdzv-backend", "c10d"),
            ("rdzv-endpoint", f"[fd00::1]:{port}"),
            ("max-restarts", str(restarts)),
            ("node-rank", "0"),
            ("rdzv-id", "7"),
        ])
    )  # fmt: skip
    words = []
    for name, value in given_options:
        spelled = f"--{name if draw(st.booleans()) else name.replace('-', '_')}"
        words += [f"{spelled}={value}"] if draw(st.booleans()) else [spelled, value]
    return words, {
        "nodes": nodes,
        "procsPerNode": processes,
        "rendezvous": {"backend": "c10d", "port": port},
        "restart": {"maxProcessRestarts": restarts},
    }


@given(options(), NAMES, ARGUMENTS)
@settings(max_examples=40)
def test_any_line_made_of_options_is_read_back_as_the_same_job(
    made: tuple[list[str], dict[str, Any]], program: str, arguments: list[str]
) -> None:
    words, expected = made
    found = spec(line("torchrun", *words, program, *arguments))
    trainer = {"script": program, **({"args": arguments} if arguments else {})}
    backend = {"backend": found["backend"]} if "backend" in found else {}
    assert found == {**expected, **backend, "trainer": trainer}
