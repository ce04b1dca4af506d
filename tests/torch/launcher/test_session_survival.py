"""A loop of one's own goes on when a rank is killed: the others keep their processes, and the step is made again."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import Job, Node, launchers
from survivors import Ranks, kill, train

pytest.importorskip("torch")

PROGRAM = Path(__file__).parents[1] / "trainer" / "programs" / "own_surviving.py"
LAST = 32
"""Steps of two epochs with four ranks."""
SAMPLES = 1024


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


def _check(job: Job, nodes: tuple[Node, Node], ranks: Ranks, *killed: int, unreported: int = 0) -> None:
    """All ranks but these have kept their processes, and each sample was read once in each epoch.

    Args:
        unreported: steps that a rank has finished without a word, because it was killed in them.
    """
    assert [node.end() for node in nodes] == [0, 0], ranks.output
    by_step: dict[int, dict[int, list[int]]] = {}
    for rank in range(4):
        assert ranks.processes(rank) == 1 + (rank in killed), ranks.output
        numbers = [step for _, step in ranks.steps(rank)]
        assert numbers == sorted(set(numbers)), "no step counts twice"
        for line in (job.folder / f"steps-{rank}").read_text().splitlines():
            _, step, *read = map(int, line.split())
            by_step.setdefault(step, {})[rank] = read
    assert set(by_step) == set(range(1, LAST + 1))
    assert sum(4 - len(found) for found in by_step.values()) == unreported
    for epoch in (range(1, LAST // 2 + 1), range(LAST // 2 + 1, LAST + 1)):
        times = Counter(each for step in epoch for found in by_step[step].values() for each in found)
        assert set(times.values()) == {1}
    assert sum(len(read) for found in by_step.values() for read in found.values()) == 2 * SAMPLES - 16 * unreported


def _check_all_again(nodes: tuple[Node, Node], ranks: Ranks) -> None:
    assert [node.end() for node in nodes] == [0, 0], ranks.output
    assert all(ranks.processes(rank) == 2 for rank in range(4)), ranks.output
    assert "all workers restart in their running pods" in ranks.output


@pytest.mark.parametrize(
    ("moment", "words"),
    [
        # A queue that is too large to be copied without need, and changes without a word.
        ("killed-in-backward", ("large", "unseen")),
        *(
            pytest.param(*each, marks=pytest.mark.full)
            for each in (
                ("killed-before-backward", ()),
                ("both", ()),
                ("killed-in-backward", ("accumulate",)),
                ("killed-in-backward", ("fp16",)),
                ("killed-in-backward", ("compress",)),
                ("killed-in-backward", ("stream",)),
                ("killed-before-backward", ("resume-first",)),
                ("killed-before-backward", ("sum-after",)),
            )
        ),
    ],
)
def test_a_step_that_was_lost_is_made_again(
    job: Job, tmp_path_factory: pytest.TempPathFactory, moment: str, words: tuple[str, ...]
) -> None:
    expected = _undisturbed(tmp_path_factory, *words)
    nodes, ranks = _train(job, moment, *words)
    _check(job, nodes, ranks, *((1, 2) if moment == "both" else (2,)))
    # Bit by bit: parameters, the average, the queue that had changed before the step was lost, the schedule.
    assert ranks.ends == {expected}
    # As at the beginning: nothing speaks against another loss.
    assert "all processes start again" not in ranks.output
    assert f"process restart {2 if moment == 'both' else 1} of 3" in ranks.output


@pytest.mark.full
def test_a_rank_is_killed_that_has_changed_its_parameters_before_the_others_know(
    job: Job, tmp_path_factory: pytest.TempPathFactory
) -> None:
    nodes, ranks = _train(job, "killed-in-step")
    _check(job, nodes, ranks, 2, unreported=1)
    assert ranks.ends == {_undisturbed(tmp_path_factory)}


@pytest.mark.full
@pytest.mark.parametrize("moment", ["killed-in-evaluation", "killed-in-save"])
def test_a_rank_is_killed_while_the_others_evaluate_or_save(
    job: Job, tmp_path_factory: pytest.TempPathFactory, moment: str
) -> None:
    nodes, ranks = _train(job, moment, "save", "best")
    _check(job, nodes, ranks, 1)
    # With the same checkpoints, that of the best evaluation among them.
    assert ranks.ends == {_undisturbed(tmp_path_factory, "save", "best")}


@pytest.mark.full
def test_a_rank_is_killed_again_and_again(job: Job, tmp_path_factory: pytest.TempPathFactory) -> None:
    nodes, ranks = _train(job, STEP_SECONDS="0.2")
    first = ranks.wait_for(0, 5)
    kill(first)
    kill(ranks.successor(0, first))
    ranks.wait_for(0, 20)
    assert [node.end() for node in nodes] == [0, 0], ranks.output
    assert ranks.processes(0) == 3
    assert {ranks.processes(rank) for rank in (1, 2, 3)} == {1}
    assert ranks.ends == {_undisturbed(tmp_path_factory)}


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("killed-in-evaluation", "first"),
            "rank 0 was lost, or left behind, where the others wait",
        ),
        (("killed-in-evaluation", "together"), "an exception outside of the `with` of a step cannot be taken back"),
        (("killed-in-backward", "perturb"), "the lost step has changed the parameters"),
        (("killed-in-backward", "barrier-before"), "all processes start again: the ranks have exchanged something"),
        (("killed-in-backward", "unkept"), "all processes start again: a learning-rate scheduler is not kept"),
        (("killed-in-backward", "stream", "once"), "all processes start again: the loader can be read only once"),
        (("raise-once",), "RuntimeError: expected another shape"),
    ],
)
def test_all_processes_start_again_where_the_loop_cannot_go_on(
    job: Job, tmp_path_factory: pytest.TempPathFactory, words: tuple[str, ...], said: str
) -> None:
    nodes, ranks = _train(job, "save", *words)
    _check_all_again(nodes, ranks)
    assert said in ranks.output
    others = [each for each in words if each in ("perturb", "stream", "together")]
    assert ranks.ends == {_undisturbed(tmp_path_factory, "save", *others)}


@pytest.mark.full
def test_learning_rates_that_differ_since_a_rank_was_replaced_end_the_training(job: Job) -> None:
    nodes, ranks = _train(job, "killed-in-backward", "other-rates", PET_MAX_RESTARTS="1")
    assert [node.end() for node in nodes] != [0, 0], ranks.output
    assert "differ between the ranks since one of them was replaced" in ranks.output
