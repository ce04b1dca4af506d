"""Job scripts of PBS and Slurm, and the jobs that they become."""

from contextlib import suppress

import pytest
from converting import ALL, about, pbs, slurm, spec, specs, told
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpjob.convert.job import Supported
from ddpjob_core.api.errors import UsageProblem

GADI = """\
#!/bin/bash

#PBS -P vp91
#PBS -q gpuvolta

#PBS -l ncpus=96
#PBS -l ngpus=8
#PBS -l mem=10GB
#PBS -l walltime=00:05:00 

#PBS -N multinode

module load python3/3.11.0  
module load cuda/12.3.2
module load nccl/2.19.4

. /scratch/vp91/Training-Venv/pytorch/bin/activate

python3 /scratch/vp91/$USER/intro-to-pytorch/src/distributed_data_parallel.py

# Get the list of allocated nodes
NODES=$(cat $PBS_NODEFILE | uniq)
NODE_ARR=($NODES)

# Define the master node (usually the first node in the list)
MASTER_ADDR=${NODE_ARR[0]}
MASTER_PORT=12355  # Set an appropriate port for communication

NNODES=2
NPROC_PER_NODE=4
WORLD_SIZE=$(($NNODES * $NPROC_PER_NODE))

torchrun --nnodes=$NNODES --nproc_per_node=$NPROC_PER_NODE \\
         --node_rank=$PBS_NODEID --master_addr=$MASTER_ADDR \\
         --master_port=$MASTER_PORT /scratch/vp91/$USER/intro-to-pytorch/src/multinode_torchrun.py
"""  # noqa: W291 as in the tutorial
SOURCES = "/scratch/vp91/$USER/intro-to-pytorch/src"
EACH = {"limits": {"cpu": 48, "memory": "5Gi", "nvidia.com/gpu": 4}}
MULTINODE = {
    "nodes": 2,
    "procsPerNode": 4,
    "rendezvous": {"backend": "static", "port": 12355},
    "activeDeadlineSeconds": 300,
    "trainer": {"image": "img", "script": f"{SOURCES}/multinode_torchrun.py", "resources": EACH},
}


@pytest.mark.usefixtures("whole_api")
def test_the_script_of_the_tutorial_becomes_a_job_for_each_of_its_launch_lines() -> None:
    converted = pbs(GADI, supported=ALL)
    assert [document.name for document in converted.documents] == ["multinode-1", "multinode-2"]
    assert specs(converted) == [
        {
            "nodes": 1,
            "procsPerNode": 1,
            "launcher": "python",
            "activeDeadlineSeconds": 300,
            "trainer": {"image": "img", "script": f"{SOURCES}/distributed_data_parallel.py", "resources": EACH},
        },
        MULTINODE,
    ]


@pytest.mark.usefixtures("whole_api")
def test_all_that_the_script_of_the_tutorial_loses_is_reported_line_by_line() -> None:
    found = told(pbs(GADI, supported=ALL))
    assert [(number, text) for number, text, _ in found] == [
        (3, "#PBS -P vp91"),
        (4, "#PBS -q gpuvolta"),
        (6, "#PBS -l ncpus=96"),
        (7, "#PBS -l ngpus=8"),
        (8, "#PBS -l mem=10GB"),
        (11, "multinode"),
        (13, "module load python3/3.11.0"),
        (14, "module load cuda/12.3.2"),
        (15, "module load nccl/2.19.4"),
        (17, ". /scratch/vp91/Training-Venv/pytorch/bin/activate"),
        (19, f"python3 {SOURCES}/distributed_data_parallel.py"),
        (19, f"{SOURCES}/distributed_data_parallel.py"),
        (19, f"{SOURCES}/distributed_data_parallel.py"),
        (22, "NODES=$(cat $PBS_NODEFILE | uniq)"),
        (23, "NODE_ARR=($NODES)"),
        (26, "MASTER_ADDR=${NODE_ARR[0]}"),
        (33, "2 launch lines"),
        (34, "--node_rank=$PBS_NODEID"),
        (34, "--master_addr=$MASTER_ADDR"),
        (35, "no --rdzv-backend"),
        (35, f"{SOURCES}/multinode_torchrun.py"),
        (35, f"{SOURCES}/multinode_torchrun.py"),
    ]
    messages = {text: message for _, text, message in found}
    assert "the namespace, whose quota" in messages["#PBS -P vp91"]
    assert "the total of all 2 nodes: each gets 48" in messages["#PBS -l ncpus=96"]
    assert "each gets 5Gi" in messages["#PBS -l mem=10GB"]
    assert "in the image" in messages["module load cuda/12.3.2"]
    assert "the image's own Python" in messages[". /scratch/vp91/Training-Venv/pytorch/bin/activate"]
    assert "the pods of a job find each other" in messages["NODES=$(cat $PBS_NODEFILE | uniq)"]
    assert "the ordinal of a pod" in messages["--node_rank=$PBS_NODEID"]
    assert "$USER is not known" in messages[f"{SOURCES}/multinode_torchrun.py"]
    assert "ddpjob run -f multinode-1.yaml && ddpjob run -f multinode-2.yaml" in messages["2 launch lines"]
    assert "kubectl wait --for=condition=Succeeded" in messages["2 launch lines"]


def test_a_launch_line_that_no_job_can_stand_for_does_not_keep_the_others() -> None:
    converted = pbs(GADI, supported=Supported(launchers=frozenset({"torchrun"})))
    assert [document.name for document in converted.documents] == ["multinode"]
    assert specs(converted) == [MULTINODE]
    assert "not converted" in about(converted, "spec.launcher")


SCHEDULED = "#PBS -l select=2:ncpus=8:ngpus=4:mem=64gb\n#PBS -l walltime=01:00:00\n"


def test_chunks_are_nodes() -> None:
    converted = pbs(SCHEDULED + "torchrun --nnodes=2 --nproc-per-node=gpu train.py\n")
    found = spec(converted)
    assert (found["procsPerNode"], found["activeDeadlineSeconds"]) == (4, 3600)
    assert found["trainer"]["resources"] == {"limits": {"cpu": 8, "memory": "64Gi", "nvidia.com/gpu": 4}}
    assert spec(pbs(SCHEDULED + "torchrun --nproc-per-node=cpu train.py\n"))["procsPerNode"] == 8


def test_nodes_that_a_line_does_not_tell_are_those_of_the_directives() -> None:
    assert spec(pbs(SCHEDULED + "torchrun --nnodes=$N train.py\n"))["nodes"] == 2
    converted = pbs(SCHEDULED + "torchrun --nnodes=1 train.py\n")
    assert "the script requests 2 nodes, this line uses 1" in about(converted, "torchrun --nnodes=1")


def test_the_name_of_a_job_is_made_one_that_kubernetes_takes() -> None:
    converted = pbs("#PBS -N 2nd.Job_x\ntorchrun train.py\n")
    assert converted.documents[0].name == "job-2nd-job-x"
    assert "a name must be a DNS label" in about(converted, "2nd.Job_x")
    assert pbs("#PBS -N x\ntorchrun train.py\n", name="mine").documents[0].name == "mine"


def test_lines_for_each_node_over_ssh_are_one_job() -> None:
    script = """\
i=0
for node in $(uniq $PBS_NODEFILE); do
  ssh $node "cd $PBS_O_WORKDIR; . venv/bin/activate; torchrun --nnodes=${NN:-3} --nproc_per_node=$((48/12)) \\
    --node_rank=$i --master_addr=$(hostname) --master_port=29511 train.py" &
  i=$((i+1))
done
wait
"""
    converted = pbs(script)
    assert spec(converted) == {
        "nodes": 3,
        "procsPerNode": 4,
        "rendezvous": {"backend": "static", "port": 29511},
        "trainer": {"script": "train.py"},
    }
    assert "the job starts every node" in about(converted, "ssh $node")
    assert "default is used" in about(converted, "$NN")
    assert "as if it ran once" in about(converted, "torchrun --nnodes=3")


def test_exported_variables_are_given_to_the_program() -> None:
    script = """\
export A=1 B="two words"
C=3
D=4
export D
export PATH=$HOME/bin:$PATH MASTER_ADDR=h
export E=$(date)
F=6 torchrun train.py
"""
    converted = pbs(script)
    env = {variable["name"]: variable["value"] for variable in spec(converted)["trainer"]["env"]}
    assert env == {"A": "1", "B": "two words", "D": "4", "F": "6"}
    assert "the image's PATH" in about(converted, "export PATH")
    assert "the launcher sets MASTER_ADDR" in about(converted, "export MASTER_ADDR=h")
    assert "E is not carried over" in about(converted, "export E")


def test_a_variable_that_is_set_in_a_block_is_not_taken_for_known() -> None:
    script = 'N=2\nif [ -n "$X" ]; then N=3; fi\ntorchrun --nnodes=$N train.py\n'  # fmt: skip
    with pytest.raises(UsageProblem, match=r"script:3: spec\.nodes: --nnodes=\$N"):
        pbs(script)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("module load x", "in the image"),
        ("conda activate x", "in the image"),
        ("pip install x", "in the image"),
        ("source venv/bin/activate", "the image's own Python"),
        (". ./settings.sh", "spec.trainer.env"),
        ("cd $PBS_O_WORKDIR", "spec.trainer.workingDir"),
        ("mkdir -p out", "an init container"),
        ("ulimit -s unlimited", "container runtime"),
        ("sbatch next.sh", "another job"),
        ("./prepare.sh", "in the program, in an init container or in the image"),
        ("python -c 'import torch'", "in the program, in an init container or in the image"),
        ("horovodrun -np 2 python x.py", "does not start the launcher horovodrun"),
    ],
)
def test_commands_around_the_launch_line_are_reported(command: str, message: str) -> None:
    converted = pbs(f"{command}\ntorchrun train.py\n")
    assert any(message in text for number, _, text in told(converted) if number == 1)


@pytest.mark.parametrize("command", ["echo starting", "date", "set -e", "[ -f x ]", "nvidia-smi", "wait", "A=1"])
def test_commands_that_change_nothing_are_not_told(command: str) -> None:
    assert [text for number, text, _ in told(pbs(f"{command}\ntorchrun train.py\n")) if number == 1] == []


SBATCH = """\
#!/bin/bash
#SBATCH --job-name=multinode-example
#SBATCH --nodes=4
#SBATCH --ntasks=4
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=4
#SBATCH --time=02:00:00
#SBATCH --partition=gpu

nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
nodes_array=($nodes)
head_node=${nodes_array[0]}
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)

echo Node IP: $head_node_ip
export LOGLEVEL=INFO

srun torchrun \\
--nnodes $SLURM_NNODES \\
--nproc_per_node 1 \\
--rdzv_id $RANDOM \\
--rdzv_backend c10d \\
--rdzv_endpoint $head_node_ip:29500 \\
/shared/examples/multinode_torchrun.py 50 10
"""


def test_a_script_of_slurm_becomes_the_job_that_it_means() -> None:
    converted = slurm(SBATCH)
    assert converted.documents[0].name == "multinode-example"
    assert spec(converted) == {
        "nodes": 4,
        "procsPerNode": 1,
        "rendezvous": {"backend": "c10d", "port": 29500},
        "activeDeadlineSeconds": 7200,
        "trainer": {
            "script": "/shared/examples/multinode_torchrun.py",
            "args": ["50", "10"],
            "env": [{"name": "LOGLEVEL", "value": "INFO"}],
            "resources": {"limits": {"cpu": 4, "nvidia.com/gpu": 1}},
        },
    }
    assert [(number, text) for number, text, _ in told(converted)] == [
        (8, "#SBATCH --partition=gpu"),
        (10, "nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )"),
        (11, "nodes_array=($nodes)"),
        (12, "head_node=${nodes_array[0]}"),
        (13, 'head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)'),
        (21, "--rdzv_id $RANDOM"),
        (23, "--rdzv_endpoint $head_node_ip:29500"),
        (24, "/shared/examples/multinode_torchrun.py"),
    ]


@pytest.mark.parametrize(
    ("directives", "command", "nodes", "processes"),
    [
        ("-N 2 --ntasks-per-node=4", "srun python train.py", 2, 4),
        ("-N 2 -n 8", "srun python train.py", 2, 4),
        ("-N 4 --ntasks-per-node=4", "srun -N 2 -n 8 python train.py", 2, 4),
        ("-N 2 --ntasks-per-node=1", "srun --cpu-bind=none apptainer exec --nv x.sif python train.py", 2, 1),
        ("-N 2", "srun torchrun --nnodes=$SLURM_NNODES --nproc-per-node=$SLURM_GPUS_ON_NODE train.py", 2, "auto"),
        ("-N 2", 'srun bash -c "torchrun --nnodes=2 --node_rank \\$SLURM_PROCID train.py"', 2, 1),
        ("-N 2 --ntasks-per-node=2", "L='python -m torch.distributed.run --nnodes=2'; srun $L train.py", 2, 1),
    ],
)  # fmt: skip
def test_what_srun_starts_on_each_node_is_what_the_job_starts(
    directives: str, command: str, nodes: int, processes: int | str
) -> None:
    converted = slurm(f"#SBATCH {directives}\n{command}\n")
    found = spec(converted)
    assert (found["nodes"], found["procsPerNode"], found["trainer"]["script"]) == (nodes, processes, "train.py")
    assert "launcher" not in found


def test_srun_of_plain_python_becomes_torchrun() -> None:
    converted = slurm("#SBATCH -N 2 --ntasks-per-node=4\nsrun --mpi=pmi2 python train.py --rank $SLURM_PROCID\n")
    assert "torchrun starts them" in about(converted, "srun --mpi=pmi2 python")
    assert "starts every node" in about(converted, "srun --mpi=pmi2")
    assert "in the environment as RANK" in about(converted, "$SLURM_PROCID")


def test_several_launchers_on_a_node_are_reported() -> None:
    converted = slurm("#SBATCH -N 1 --ntasks-per-node=4\nsrun torchrun train.py\n")
    assert "the job starts one" in about(converted, "srun torchrun")


def test_gpus_of_all_nodes_are_shared_out() -> None:
    converted = slurm("#SBATCH --gpus=8 --ntasks=2\nsrun torchrun --nnodes=2 --nproc-per-node=gpu train.py\n")
    assert spec(converted)["procsPerNode"] == 4
    assert "each gets 4" in about(converted, "#SBATCH --gpus=8")


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("#PBS -N 'x\ntorchrun x.py", "script:1: #PBS -N 'x: no closing quotation"),
        ("a=" + "(a=" * 3000 + "x" + ")" * 3000, "script"),
        ("echo done\n", "script: no launch line found"),
        ("date\ntorchrun --nnodes=$N a.py\nmpirun -np 1 ./b\n", "script:2: spec.nodes"),
    ],
)
def test_a_script_that_no_job_can_be_made_of_is_refused(script: str, problem: str) -> None:
    with pytest.raises(UsageProblem) as refused:
        pbs(script)
    assert problem in str(refused.value)


# fmt: off
TOKENS = [
    "torchrun", "--nnodes=2", "--nproc_per_node=$((1+1))", "--node_rank", "$PBS_NODEID", "train.py", "python", "mpirun",
    "srun", "-np", "2", "-H", "a:2", "#PBS", "-l", "select=2:ncpus=4:mem=1gb", "-N", "x", "A=1", "export", "$A",
    "${A:-2}", "$(", ")", "if", "then", "fi", "for", "do", "done", '"', "'", "(", "<", ">", "|", "&", ";", "\\", "\n",
]
# fmt: on


@given(st.lists(st.sampled_from(TOKENS), max_size=25).map(" ".join))
@settings(max_examples=60)
def test_any_script_becomes_jobs_or_is_refused_in_a_sentence(script: str) -> None:
    for convert in (pbs, slurm):
        with suppress(UsageProblem):
            assert convert(script).documents
