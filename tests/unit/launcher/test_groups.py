"""Whether the processes of a job were one process group, by what those of one node have noted."""

from pathlib import Path

import pytest

from ddpjob_launcher.groups import small_group
from tests.unit.launcher.running import settings_of


def noted(folder: Path, *groups: str) -> list[str]:
    files = []
    for number, group in enumerate(groups):
        (folder / str(number)).mkdir()
        (folder / str(number) / f"group.{100 + number}").write_text(group)
        files.append(str(folder / str(number) / "error.json"))
    return files


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([], ()),
        (["4 0 4", "4 1 4"], ()),
        (["1 0 1"], ()),
        (["1 0 4", "1 0 4"], (1, 4)),
        (["4 0 4", "1 0 4"], (1, 4)),
        # A program may form a group that is larger than what it was given.
        (["8 0 4"], ()),
        (["", "x y z", "4 1 4"], ()),
    ],
)
def test_a_group_is_compared_with_the_world_of_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: list[str], expected: tuple[int, ...]
) -> None:
    monkeypatch.delenv("DDPJOB_PROCS_PER_NODE", raising=False)
    files = [*noted(tmp_path, *groups), str(tmp_path / "never-ran" / "error.json")]
    assert small_group(files, settings_of(DDPJOB_NODES="4")) == expected


@pytest.mark.parametrize(
    ("node", "groups", "expected"),
    [
        # One process on each of two nodes.
        ("0", ["2 0 2"], ()),
        ("1", ["2 1 2"], ()),
        ("0", ["1 0 2"], (1, 2)),
        # Two that the program has spawned on each.
        ("1", ["4 2 2", "4 3 2"], ()),
        ("0", ["2 0 2", "2 1 2"], (2, 3)),
        ("1", ["2 0 2", "2 1 2"], (2, 4)),
        ("0", ["1 0 2", "1 0 2"], (1, 3)),
        # One after the other, as for two folds: these are not four at a time.
        ("0", ["4 0 2", "4 1 2", "4 0 2", "4 1 2"], ()),
    ],
)
def test_a_program_that_spawns_has_at_least_the_processes_of_the_node_and_one_on_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: str, groups: list[str], expected: tuple[int, ...]
) -> None:
    monkeypatch.setenv("DDPJOB_PROCS_PER_NODE", "2")
    assert small_group(noted(tmp_path, *groups), settings_of(DDPJOB_NODE_RANK=node)) == expected
