"""A loop of one's own goes on when a rank is killed: the others keep their processes, and the step is made again."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import Job, Node, launchers, wait_until
from survivors import Ranks, kill, train

pytest.importorskip("torch")

PROGRAM = Path(__file__).parents[1] / "trainer" / "programs" / "own_surviving.py"
LAST = 32
"""Steps of two epochs with four ranks."""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    with launchers(tmp_path, monkeypatch) as job:
        yield job


def _train(job: Job, *words: str, **options: str) -> tuple[tuple[Node, Node], Ranks]:
    return train(job, PROGRAM.read_text(), *words, **options)


_KNOWN: dict[tuple[str, ...], str] = {}


def _undisturbed(factory: pytest.TempPathFactory, *words: str) -> str:
    """What comes of the same training without a loss."""
    if words not in _KNOWN:
        with pytest.MonkeyPatch.context() as patch, launchers(factory.mktemp("undisturbed"), patch) as job:
            nodes, ranks = _train(job, *words, STEP_SECONDS="0")
            assert [node.end() for node in nodes] == [0, 0], ranks.output
            (_KNOWN[words],) = ranks.ends
    return _KNOWN[words]


def _check(job: Job, nodes: tuple[Node, Node], ranks: Ranks, *killed: int) -> None:
    """All ranks but these have kept their processes, and each sample was read once in each epoch."""
    assert [node.end() for node in nodes] == [0, 0], ranks.output
    for rank in set(range(4)) - set(killed):
        steps = ranks.steps(rank)
        assert ranks.processes(rank) == 1, ranks.output
        numbers = [step for _, step in steps]
        assert numbers == sorted(set(numbers)), "no step counts twice"
        assert numbers[-1] == LAST
    by_step: dict[int, dict[int, list[int]]] = {}
    for rank in range(4):
        for line in (job.folder / f"steps-{rank}").read_text().splitlines():
            _, step, *read = map(int, line.split())
            by_step.setdefault(step, {})[rank] = read
    assert set(by_step) == set(range(1, LAST + 1))
    for epoch in (range(1, LAST // 2 + 1), range(LAST // 2 + 1, LAST + 1)):
        # Of a step that was committed by the rank that was killed, and told by nobody, the samples are not known.
        assert all(len(by_step[step]) == 4 for step in epoch), ranks.output
        read = Counter(each for step in epoch for found in by_step[step].values() for each in found)
        assert read == Counter(range(1024))


@pytest.mark.parametrize(
    "moment",
    [
        "killed-before-backward",
        "killed-in-backward",
        pytest.param("both", marks=pytest.mark.full),
    ],
)
def test_a_step_that_was_lost_is_made_again(job: Job, tmp_path_factory: pytest.TempPathFactory, moment: str) -> None:
    nodes, ranks = _train(job, moment)
    _check(job, nodes, ranks, *((1, 2) if moment == "both" else (2,)))
    # Bit by bit: parameters, buffers, the average, the queue that had changed before the step was lost, the schedule.
    assert ranks.ends == {_undisturbed(tmp_path_factory)}
    restarts = 2 if moment == "both" else 1
    assert f"process restart {restarts} of 3" in ranks.output
