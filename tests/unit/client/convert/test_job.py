"""What a launch line becomes in a job, beyond its own options."""

import pytest
from converting import ALL, about, line, spec

from ddpjob.convert.job import Supported
from ddpjob_core.api.spec import Backend


def test_a_port_among_those_of_the_metrics_is_left_out() -> None:
    converted = line("torchrun --nproc-per-node=4 --master-port=9404 train.py")
    assert "rendezvous" not in spec(converted)
    assert "serve metrics there" in about(converted, "port 9404")
    assert spec(line("torchrun --nproc-per-node=3 --master-port=9404 train.py"))["rendezvous"] == {"port": 9404}


def test_a_line_that_says_nothing_of_gpus_is_asked_for_them() -> None:
    assert "pass --gpus N if the program uses them" in about(line("torchrun train.py"), "torchrun train.py")
    assert "--gpus" not in about(line("torchrun train.py", gpus=0), "torchrun train.py")


def test_the_devices_of_another_machine_are_not_those_of_a_pod() -> None:
    converted = line("CUDA_VISIBLE_DEVICES=2,3 A=1 torchrun --nproc-per-node=2 train.py", gpus=2)
    assert spec(converted)["trainer"]["env"] == [{"name": "A", "value": "1"}]
    assert "only the GPUs that it requests" in about(converted, "CUDA_VISIBLE_DEVICES=2,3")


def test_gpus_of_the_option_become_resources_and_processes() -> None:
    found = spec(line("torchrun --nproc-per-node=gpu train.py", gpus=4))
    assert found["procsPerNode"] == 4
    assert found["trainer"]["resources"] == {"limits": {"nvidia.com/gpu": 4}}


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
