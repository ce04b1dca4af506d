"""How a node's end is judged under mpirun, by the files that its ranks leave."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from ddpjob_launcher.mpirun import MpirunAgent
from ddpjob_launcher.mpirun_ranks import Ranks
from tests.unit.launcher.running import settings_of


def ended(folder: Path, rank: int, code: int, *, aborted: bool = False) -> None:
    entry = {"localRank": rank % 2, "pid": 1}
    (folder / f"{rank}.begun").write_text(json.dumps(entry))
    (folder / f"{rank}.ended").write_text(json.dumps({**entry, "code": code, "time": 1.0, "aborted": aborted}))


@pytest.mark.parametrize(
    ("ends", "code", "expected"),
    [
        ({}, 0, {"exitCode": 0}),
        ({2: (0, False), 3: (0, False)}, 0, {"exitCode": 0}),
        ({2: (7, False), 3: (-15, True)}, 7, {"exitCode": 7, "failures": [2]}),
        ({2: (1, False), 3: (-9, False)}, 1, {"exitCode": 137, "failures": [3, 2]}),
        ({2: (143, False), 3: (143, False)}, 0, {"exitCode": 143, "stopped": True}),
        ({2: (143, False), 3: (-15, True)}, 1, {"exitCode": 143, "stopped": True}),
        ({2: (143, False), 3: (1, False)}, 1, {"exitCode": 1, "failures": [3, 2]}),
        ({2: (-15, True), 3: (-15, True)}, 1, {"exitCode": 143, "stopped": True}),
        ({}, 1, {"exitCode": 1, "failures": [None]}),
        ({2: (-15, True)}, None, {"exitCode": 1, "failures": [None]}),
        ({2: (7, False)}, None, {"exitCode": 7, "failures": [2]}),
        ({2: (143, False)}, None, {"exitCode": 143, "stopped": True}),
    ],
)
def test_the_end_of_a_node_is_that_of_its_ranks_which_mpirun_has_not_ended(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    ends: dict[int, tuple[int, bool]],
    code: int | None,
    expected: dict[str, Any],
) -> None:
    monkeypatch.setenv("DDPJOB_TERMINATION_LOG", str(tmp_path / "termination-log"))
    for rank, (exit_code, aborted) in ends.items():
        ended(tmp_path, rank, exit_code, aborted=aborted)
    MpirunAgent(settings_of(), str(tmp_path))._report_end(code)
    report = json.loads((tmp_path / "termination-log").read_text())
    assert (report["exitCode"], report.get("stopped", False)) == (expected["exitCode"], expected.get("stopped", False))
    assert [failure.get("rank") for failure in report.get("failures", [])] == expected.get("failures", [])


def judged(folder: Path, code: int, *, of_mpirun: bool = False) -> dict[str, Any]:
    MpirunAgent(settings_of(), str(folder))._report_end(code, of_mpirun=of_mpirun)
    report: dict[str, Any] = json.loads((folder / "termination-log").read_text())
    return report


def recorded(folder: Path, rank: int, message: str) -> None:
    file = folder / f"error-{rank}" / "error.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"message": {"message": message, "extraInfo": {"time": 2.0}}}))


@pytest.mark.parametrize("has_ended", [True, False])
def test_a_rank_whose_exception_was_on_its_way_when_mpirun_ended_it_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_ended: bool
) -> None:
    monkeypatch.setenv("DDPJOB_TERMINATION_LOG", str(tmp_path / "termination-log"))
    ended(tmp_path, 2, -15, aborted=True)
    if not has_ended:
        (tmp_path / "2.ended").unlink()
    ended(tmp_path, 3, -15, aborted=True)
    recorded(tmp_path, 2, "ValueError: bad batch")
    report = judged(tmp_path, 1)
    (failure,) = report["failures"]
    assert (failure["rank"], failure["exitCode"], failure["errorType"]) == (2, 1, "ValueError")


def test_a_rank_that_leaves_by_agreement_is_not_a_failure_however_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDPJOB_TERMINATION_LOG", str(tmp_path / "termination-log"))
    ended(tmp_path, 2, 143)
    ended(tmp_path, 3, -9, aborted=True)
    recorded(tmp_path, 3, "Stopped: 143")
    assert judged(tmp_path, 1)["stopped"] is True


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (-9, {"signal": "SIGKILL", "message": "mpirun itself was killed by SIGKILL"}),
        (14, {"exitCode": 14, "message": "connection lost: mpirun ended all ranks with exit code 14"}),
    ],
)
def test_what_mpirun_itself_ended_with_is_reported_where_it_ran(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    code: int,
    expected: dict[str, Any],
) -> None:
    monkeypatch.setenv("DDPJOB_TERMINATION_LOG", str(tmp_path / "termination-log"))
    ended(tmp_path, 0, -15, aborted=True)
    report = judged(tmp_path, code, of_mpirun=True)
    (failure,) = report["failures"]
    assert failure.get("signal") == expected.get("signal")
    assert failure.get("exitCode") == expected.get("exitCode")
    assert failure["message"].startswith(expected["message"])


def test_a_rank_that_begins_and_ends_meanwhile_is_never_half_read(tmp_path: Path) -> None:
    ended(tmp_path, 0, -signal.SIGKILL)
    (tmp_path / "1.begun").write_text('{"localRank": 1, "pid": 7}')
    (tmp_path / "1.ended.new").write_text('{"localRank": 1, "co')
    ranks = Ranks(tmp_path)
    # The number of a process that has ended may be another's by now.
    assert ranks.pids() == {1: 7}
    assert list(ranks.ended()) == [0]
