"""What the directives of PBS and Slurm have in common."""

from typing import Any

import pytest
from converting import asked_of_pbs, asked_of_slurm

from ddpjob.convert import pbs, pbs_requests, slurm
from ddpjob.convert.directives import directives


def test_directives_behind_the_first_command_do_not_count_as_with_the_schedulers() -> None:
    given = list(directives("#!/bin/sh\n\n# x\n#PBS -N a\ncd x\n#PBS -N b\n", pbs_requests.MARKER))
    assert [(option.line, option.value, option.late) for option in given] == [(4, "a", False), (6, "b", True)]
    allocation, notes = pbs.pbs_allocation(given)
    assert allocation.name == "a"
    assert "after the first command" in notes[0].message
    given = list(directives("date\n#SBATCH -N 2\n", slurm.MARKER))
    assert "after the first command" in slurm.slurm_allocation(given)[1][0].message


def test_variables_of_the_directives_are_kept() -> None:
    allocation, notes = asked_of_pbs("-v A=1,B,RANK=3")
    assert allocation.env == {"A": "1"}
    assert [note.text for note in notes] == ["#PBS -v B", "#PBS -v RANK=3"]
    assert asked_of_slurm("--export=A=1,B=2")[0].env == {"A": "1", "B": "2"}


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (
            pbs.pbs_variables(asked_of_pbs("-N x -l ncpus=8,ngpus=2")[0]),
            {"PBS_NCPUS": "8", "PBS_NGPUS": "2", "PBS_NP": "8", "PBS_JOBNAME": "x"},
        ),
        (
            slurm.slurm_variables(asked_of_slurm("-J x -N 2 --ntasks-per-node=4 -c 3 --gres=gpu:4")[0]),
            {
                "SLURM_NNODES": "2",
                "SLURM_JOB_NUM_NODES": "2",
                "SLURM_NTASKS": "8",
                "SLURM_NPROCS": "8",
                "SLURM_NTASKS_PER_NODE": "4",
                "SLURM_GPUS_ON_NODE": "4",
                "SLURM_GPUS_PER_NODE": "4",
                "SLURM_CPUS_PER_TASK": "3",
                "SLURM_JOB_NAME": "x",
            },
        ),
    ],
)
def test_the_variables_of_a_scheduler_follow_from_what_it_is_asked_for(known: Any, expected: Any) -> None:
    assert known == expected
