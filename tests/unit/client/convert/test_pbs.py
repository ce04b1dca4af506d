"""The directives of PBS."""

import pytest
from converting import asked_of_pbs

from ddpjob.convert.resources import Resources


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
def test_requests_that_contradict_each_other_are_reported_with_both_lines(
    lines: list[str], nodes: int | None, total: Resources, notes: list[tuple[int, str, str]]
) -> None:
    allocation, told = asked_of_pbs(*lines)
    assert (allocation.nodes, allocation.total) == (nodes, total)
    found = [note for note in told if note.message.startswith("contradicts")]
    assert [(note.line, note.text) for note in found] == [(line, text) for line, text, _ in notes]
    assert all(note.message.startswith(message) for note, (_, _, message) in zip(found, notes, strict=True))


@pytest.mark.parametrize("option", [*"qPAjoekmMVSrpWJthad", "Z"])
def test_every_other_option_of_pbs_is_reported(option: str) -> None:
    _, notes = asked_of_pbs(f"-{option} value" if option != "V" else "-V")
    (note,) = notes
    assert note.text.startswith(f"#PBS -{option}")
    assert note.message.startswith("not carried over: ")


@pytest.mark.parametrize(
    "item", ["place=scatter", "storage=gdata/x", "jobfs=1GB", "wd", "software=x", "pmem=1gb", "odd=1", "walltime=soon"]
)
def test_every_other_resource_of_pbs_is_reported(item: str) -> None:
    allocation, notes = asked_of_pbs(f"-l {item}")
    assert [note.text for note in notes] == [f"#PBS -l {item}"]
    assert allocation.total == Resources()
