"""What PBS and Slurm are asked for, in the units of Kubernetes."""

from typing import Any

import pytest

from ddpjob.convert import pbs, pbs_requests, slurm
from ddpjob.convert.directives import directives
from ddpjob.convert.notes import Note
from ddpjob.convert.resources import Allocation, Resources, pbs_memory, pbs_seconds, quantity, slurm_memory
from ddpjob.convert.resources import slurm_seconds as seconds_of


def asked_of_pbs(*lines: str) -> tuple[Allocation, list[Note]]:
    return pbs.pbs_allocation(list(directives("\n".join(f"#PBS {line}" for line in lines), pbs_requests.MARKER)))


def asked_of_slurm(*lines: str) -> tuple[Allocation, list[Note]]:
    return slurm.slurm_allocation(list(directives("\n".join(f"#SBATCH {line}" for line in lines), slurm.MARKER)))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("10GB", "10Gi"),
        ("10gb", "10Gi"),
        ("512mb", "512Mi"),
        ("2tb", "2048Gi"),
        ("4kb", "4Ki"),
        ("100", "100"),
        ("100b", "100"),
        ("2w", "16"),
        ("4gw", "32Gi"),
        ("ten", None),
    ],
)
def test_memory_of_pbs_is_counted_in_powers_of_1024(text: str, size: str | None) -> None:
    amount = pbs_memory(text)
    assert (quantity(amount) if amount is not None else None) == size


@pytest.mark.parametrize(
    ("text", "size"),
    [("64G", "64Gi"), ("1500", "1500Mi"), ("3T", "3072Gi"), ("9K", "9Ki"), ("4GB", "4Gi"), ("x", None)],
)
def test_memory_of_slurm_is_in_mebibytes_without_a_unit(text: str, size: str | None) -> None:
    amount = slurm_memory(text)
    assert (quantity(amount) if amount is not None else None) == size


def test_an_amount_that_no_unit_divides_is_rounded_down_to_mebibytes() -> None:
    assert quantity(10 * 1024**3 // 3) == "3413Mi"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("00:05:00", 300), ("48:00:00", 172800), ("10:30", 630), ("90", 90), ("1:0:0.5", 3600), ("soon", None)],
)
def test_walltime_of_pbs_is_seconds(text: str, seconds: int | None) -> None:
    assert pbs_seconds(text) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("90:30", 5430),
        ("2:30:15", 9015),
        ("1-2", 93600),
        ("1-2:30", 95400),
        ("1-02:30:15", 95415),
        ("UNLIMITED", None),
        ("1-", None),
    ],
)
def test_every_form_of_slurms_time_is_seconds(text: str, seconds: int | None) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    ("lines", "nodes", "total"),
    [
        (["-l ncpus=96", "-l ngpus=8", "-l mem=10GB"], None, Resources(96, 10 * 1024**3, 8)),
        (["-l ncpus=96,ngpus=8 -l mem=10GB"], None, Resources(96, 10 * 1024**3, 8)),
        (["-l select=2:ncpus=48:ngpus=4:mem=4gb:mpiprocs=4"], 2, Resources(96, 8 * 1024**3, 8)),
        (["-l select=1:ncpus=4+2:ncpus=8,walltime=1:00"], 3, Resources(20)),
        (["-l select=ncpus=4"], 1, Resources(4)),
        (["-l nodes=2:ppn=4:gpus=2"], 2, Resources(8, None, 4)),
        (["-l nodes=node01+node02:ppn=4"], 2, Resources(4)),
        (["-l walltime=1:00:00,nodes=3:ppn=1"], 3, Resources(3)),
        (["-l select=0"], None, Resources()),
        (["-l ncpus=many -l mem=much"], None, Resources()),
    ],
)
def test_what_pbs_is_asked_for_is_that_of_all_nodes(lines: list[str], nodes: int | None, total: Resources) -> None:
    allocation, _ = asked_of_pbs(*lines)
    assert (allocation.nodes, allocation.total) == (nodes, total)


@pytest.mark.parametrize(
    ("lines", "nodes", "tasks", "each"),
    [
        (["--nodes=2", "--ntasks-per-node=4", "--gpus-per-node=4"], 2, 4, Resources(gpus=4)),
        (["-N 2 -n 8 -c 6 --mem=64G"], 2, 4, Resources(24, 64 * 1024**3)),
        (["-N2 -c6"], 2, None, Resources(6)),
        (["--ntasks=8 --ntasks-per-node=4"], 2, 4, Resources()),
        (["--nodes 2-4"], 4, None, Resources()),
        (["--gres=gpu:4 -N 1"], 1, None, Resources(gpus=4)),
        (["--gres=gpu:a100:2,nvme:1 -N 1"], 1, None, Resources(gpus=2)),
        (["--gres gpu -N 1"], 1, None, Resources(gpus=1)),
        (["--gpus-per-node=h100:8 -N 1"], 1, None, Resources(gpus=8)),
        (["--gpus-per-task=1 --ntasks-per-node=4 -N 2"], 2, 4, Resources(gpus=4)),
        (["-G 8 -N 2"], 2, None, Resources(gpus=4)),
        (["--mem-per-cpu=2G -c 4 -N 1"], 1, None, Resources(4, 8 * 1024**3)),
        (["--mem-per-gpu=10G --gpus-per-node=4 -N 1"], 1, None, Resources(memory=40 * 1024**3, gpus=4)),
        (["--cpus-per-gpu=8 --gpus-per-node=4 -N 1"], 1, None, Resources(32, None, 4)),
        (["--mem=0 --nodes=x"], None, None, Resources()),
    ],
)
def test_what_slurm_is_asked_for_is_that_of_a_node(
    lines: list[str], nodes: int | None, tasks: int | None, each: Resources
) -> None:
    allocation, _ = asked_of_slurm(*lines)
    assert (allocation.nodes, allocation.tasks.per_node, allocation.each) == (nodes, tasks, each)


def test_gpus_of_all_nodes_wait_for_the_number_of_nodes() -> None:
    allocation, _ = asked_of_slurm("--gpus=8")
    assert allocation.total == Resources(gpus=8)


@pytest.mark.parametrize(
    ("lines", "nodes", "total", "notes"),
    [
        (
            ["-l ncpus=48", "-q x", "-l ncpus=96,mem=4gb"],
            None,
            Resources(96, 4 * 1024**3),
            [(1, "#PBS -l ncpus=48", "contradicts line 3, #PBS -l ncpus=96, which is used instead: keep one")],
        ),
        (["-l ncpus=48", "-l ncpus=48"], None, Resources(48), []),
        (
            ["-l select=2:ncpus=48:ngpus=4", "-l ncpus=48", "-l mem=8gb"],
            2,
            Resources(96, 8 * 1024**3, 8),
            [(2, "#PBS -l ncpus=48", "contradicts line 1, #PBS -l select=2:ncpus=48:ngpus=4, which is used instead")],
        ),
        (
            ["-l ngpus=3", "-l nodes=2:ppn=4:gpus=2"],
            2,
            Resources(8, None, 4),
            [(1, "#PBS -l ngpus=3", "contradicts line 2, #PBS -l nodes=2:ppn=4:gpus=2")],
        ),
        (
            ["-l nodes=4:ppn=1", "-l select=2:ncpus=8"],
            2,
            Resources(16),
            [(1, "#PBS -l nodes=4:ppn=1", "contradicts line 2, #PBS -l select=2:ncpus=8")],
        ),
        (
            ["-l select=1:ncpus=8", "-l select=2:ncpus=8"],
            2,
            Resources(16),
            [(1, "#PBS -l select=1:ncpus=8", "contradicts line 2, #PBS -l select=2:ncpus=8")],
        ),
        (
            ["-l walltime=1:00", "-l walltime=2:00"],
            None,
            Resources(),
            [(1, "#PBS -l walltime=1:00", "contradicts line 2, #PBS -l walltime=2:00")],
        ),
    ],
)
def test_requests_that_contradict_each_other_are_told_with_both_lines(
    lines: list[str], nodes: int | None, total: Resources, notes: list[tuple[int, str, str]]
) -> None:
    allocation, told = asked_of_pbs(*lines)
    assert (allocation.nodes, allocation.total) == (nodes, total)
    found = [note for note in told if note.message.startswith("contradicts")]
    assert [(note.line, note.text) for note in found] == [(line, text) for line, text, _ in notes]
    assert all(note.message.startswith(message) for note, (_, _, message) in zip(found, notes, strict=True))


@pytest.mark.parametrize("option", [*"qPAjoekmMVSrpWJthad", "Z"])
def test_every_other_option_of_pbs_is_told(option: str) -> None:
    _, notes = asked_of_pbs(f"-{option} value" if option != "V" else "-V")
    (note,) = notes
    assert note.text.startswith(f"#PBS -{option}")
    assert note.message.startswith("not carried over: ")


@pytest.mark.parametrize(
    "item", ["place=scatter", "storage=gdata/x", "jobfs=1GB", "wd", "software=x", "pmem=1gb", "odd=1", "walltime=soon"]
)
def test_every_other_resource_of_pbs_is_told(item: str) -> None:
    allocation, notes = asked_of_pbs(f"-l {item}")
    assert [note.text for note in notes] == [f"#PBS -l {item}"]
    assert allocation.total == Resources()


@pytest.mark.parametrize("option", sorted({*slurm._NOTES, "odd"}))
def test_every_other_option_of_slurm_is_told(option: str) -> None:
    _, notes = asked_of_slurm(f"--{option}=value")
    assert [note.text for note in notes] == [f"#SBATCH --{option}=value"]
    assert notes[0].message.startswith("not carried over: ")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("--gres=gpu:a100:2", "the GPU type a100 is not carried over"),
        ("--gres=nvme:1", "nvme:1 is not carried over"),
        ("--mem=0", "all the memory of a node is not carried over"),
        ("--nodes=1-4", "a job has a fixed size: the maximum, 4"),
        ("--time=UNLIMITED", "set spec.activeDeadlineSeconds for one"),
        ("--ntasks=x", "not a valid number"),
        ("--export=ALL,A=1", "ALL is not carried over"),
        ("--export=NONE,RANK=1", "the launcher sets RANK"),
    ],
)
def test_what_of_slurms_numbers_is_lost_is_told(lines: str, message: str) -> None:
    _, notes = asked_of_slurm(lines)
    assert any(message in note.message for note in notes)


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
