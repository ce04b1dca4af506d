"""A training that is asked to stop ends on all ranks at one step, and goes on from that very step."""

import re
import signal
from pathlib import Path

import pytest
from training import Training, checkpoints_in, plain, ranks_started, run, torchrun, whole

PROGRAM = str(Path(__file__).with_name("programs") / "resumable.py")
STEPS_AN_EPOCH = 7
# No checkpoints but those at the end of an epoch and the one of the stop.
RARE = ("--save-every-steps", "1000")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Training:
    return whole(2, PROGRAM, str(tmp_path_factory.mktemp("undisturbed")), *RARE)


def stopped_after(ranks: list[Training]) -> int:
    """The one step after which all ranks have stopped, each with exit code 143 and nothing of an error."""
    together = "\n".join(rank.output for rank in ranks)
    assert [rank.code for rank in ranks] == [143] * len(ranks), together
    assert "Traceback" not in together
    steps = [re.findall(r"RANK \d STOPPED AFTER (\d+)", rank.output) for rank in ranks]
    assert len({tuple(step) for step in steps}) == 1, together
    assert ranks[0].output.count("stop requested: all ranks stop after step") == 1
    return int(steps[0][0])


@pytest.mark.parametrize("who", [("--stop-rank", "1"), ("--data-workers", "1")], ids=["one", "all"])
def test_asked_in_the_middle_of_an_epoch_all_ranks_save_that_very_step_and_the_same_curve_goes_on(
    who: tuple[str, ...], tmp_path: Path, undisturbed: Training
) -> None:
    ranks = plain(2, PROGRAM, str(tmp_path), *RARE, "--stop-at", "9", "--step-seconds", "0.3", *who)
    step = stopped_after(ranks)
    # Looked at every third step at the rarest, and the epoch ends with step 14.
    assert 9 <= step <= 13
    assert checkpoints_in(tmp_path) == ["step-000000007.attempt-0", f"step-{step:09d}.attempt-0"]
    resumed = whole(2, PROGRAM, str(tmp_path), *RARE)
    assert min(resumed.losses) == step + 1
    assert {**ranks[0].losses, **resumed.losses} == undisturbed.losses
    assert resumed.digest == undisturbed.digest


@pytest.mark.parametrize(
    ("where", "expected", "evaluations"), [("start", 0, 3), ("7", STEPS_AN_EPOCH, 3), ("evaluation", STEPS_AN_EPOCH, 2)]
)
def test_asked_before_the_first_step_at_the_end_of_an_epoch_or_in_an_evaluation_nothing_is_lost(
    where: str, expected: int, evaluations: int, tmp_path: Path, undisturbed: Training
) -> None:
    ranks = plain(2, PROGRAM, str(tmp_path), *RARE, "--stop-at", where, "--stop-rank", "1", "--step-seconds", "0.05")
    assert stopped_after(ranks) == expected
    resumed = whole(2, PROGRAM, str(tmp_path), *RARE)
    assert {**ranks[0].losses, **resumed.losses} == undisturbed.losses
    assert resumed.digest == undisturbed.digest
    # An evaluation that was due when the training stopped is made up for.
    assert resumed.output.count("RANK 0 EVALUATED") == evaluations


def test_asked_when_all_is_done_but_the_end_a_training_succeeds(tmp_path: Path) -> None:
    ranks = plain(2, PROGRAM, str(tmp_path), *RARE, "--epochs", "1", "--stop-at", "evaluation")
    assert [rank.code for rank in ranks] == [0, 0]


def test_a_rank_that_waits_for_one_that_hangs_ends_soon_after_sigterm_and_shows_where(tmp_path: Path) -> None:
    variables = {"DDPJOB_GRACE_PERIOD_SECONDS": "6"}
    with ranks_started(2, PROGRAM, str(tmp_path), *RARE, "--hang-rank", "1", variables=variables) as (waits, hangs):
        assert "HANGS\n" in hangs.output
        waits.terminate()
        code, said = waits.end()
    assert code == -signal.SIGTERM, said
    assert re.search(r"asked to stop, but no step has finished for \d+ s \(activity step\)", said)
    assert "in _train_epoch" in said


@pytest.mark.parametrize(
    "how",
    [pytest.param((), id="synchronous"), pytest.param(("--asynchronous",), id="asynchronous", marks=pytest.mark.full)],
)
def test_torchrun_sees_the_exit_code_of_an_agreed_stop_and_kills_no_rank_on_its_way_out(
    tmp_path: Path, how: tuple[str, ...]
) -> None:
    done = run(torchrun(2, PROGRAM, str(tmp_path), "--stop-at", "2", "--stop-rank", "0", "--step-seconds", "0.2", *how))
    assert done.code == 1
    assert re.search(r"exitcode\s+: 143", done.output), done.output
    assert "-15" not in done.output
