"""Several trainings in one process, such as the folds of a cross-validation."""

import re
from pathlib import Path

from training import checkpoints_in, plain, whole

from tests.ports import free_ports

PROGRAM = str(Path(__file__).with_name("programs") / "twice.py")


def trained(output: str) -> list[tuple[str, int, str]]:
    return [(name, int(steps), digest) for name, steps, digest in re.findall(r"TRAINED (\S+) (\d+) (\S+)", output)]


def test_each_named_training_in_a_process_trains_saves_resumes_and_serves_its_own(tmp_path: Path) -> None:
    variables = {"DDPJOB_METRICS_PORT": str(free_ports(2)[0])}
    ranks = plain(2, PROGRAM, str(tmp_path), "first", "second", variables=variables)
    assert [rank.code for rank in ranks] == [0, 0], ranks[0].output
    for rank in ranks:
        assert [(name, steps) for name, steps, _ in trained(rank.output)] == [("first", 4), ("second", 8)]
        assert re.findall(r"PLANNED (\d+)", rank.output) == ["4", "8"]
    assert "cannot serve" not in ranks[0].output
    assert [checkpoints_in(tmp_path / name)[-1] for name in ("first", "second")] == [
        "step-000000004.attempt-0",
        "step-000000008.attempt-0",
    ]
    again = whole(2, PROGRAM, str(tmp_path), "first", "second")
    assert [steps for _, steps, _ in trained(again.output)] == [0, 0, 0, 0]
    assert {digest for *_, digest in trained(again.output)} == {digest for *_, digest in trained(ranks[0].output)}


def test_a_second_training_without_a_name_of_its_own_is_refused(tmp_path: Path) -> None:
    for names in ((), ("same", "same")):
        (rank,) = plain(1, PROGRAM, str(tmp_path / str(len(names))), *names)
        assert rank.code == 1
        assert len(trained(rank.output)) == 1
        assert "MisuseError: this process has already trained with the checkpoints in" in rank.output
        assert "name=" in rank.output
    (rank,) = plain(1, PROGRAM, str(tmp_path), "../x", "y")
    assert "MisuseError: the name of a training must be" in rank.output
