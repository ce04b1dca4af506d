"""The parts of the launcher mpirun that need neither mpirun nor sshd: files, names, and how a node's end is judged."""

import importlib
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import ddpjob_launcher as package

FOLDER = str(Path(package.__file__).parent)


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ModuleType, ModuleType, ModuleType]]:
    """mpirun_launcher, remote_shell and launcher as they import each other where they are delivered."""
    monkeypatch.syspath_prepend(FOLDER)
    names = ("mpirun_launcher", "remote_shell", "launcher")
    found = [importlib.import_module(name) for name in names]
    yield found[0], found[1], found[2]
    for name in names:
        sys.modules.pop(name)


def test_mpirun_counts_ranks_in_the_order_of_the_ordinals(modules: tuple[ModuleType, ...], tmp_path: Path) -> None:
    mpirun = modules[0]
    assert mpirun.hostfile(["10.0.0.9", "10.0.0.1"], 4) == "10.0.0.9 slots=4\n10.0.0.1 slots=4\n"
    command = mpirun.mpirun_command("/usr/bin/mpirun", tmp_path, 8, ["python3", "train.py"])
    assert command[0] == "/usr/bin/mpirun"
    assert command[-2:] == ["python3", "train.py"]
    options = " ".join(command[1:-2])
    assert options == f"--hostfile {tmp_path} -np 8 --map-by slot --bind-to none"


@pytest.mark.parametrize(
    ("first", "ordinal", "nodes", "expected"),
    [
        ("digits-a0-0.digits.ml.svc.cluster.local.", 1, 2, "digits-a0-1.digits.ml.svc.cluster.local."),
        ("digits-a3-00.digits", 7, 12, "digits-a3-07.digits"),
        ("my-job-a0-000.my-job", 120, 200, "my-job-a0-120.my-job"),
    ],
)
def test_the_names_of_the_nodes_follow_from_that_of_node_0(
    modules: tuple[ModuleType, ...], first: str, ordinal: int, nodes: int, expected: str
) -> None:
    assert modules[0].node_name(first, ordinal, nodes) == expected


def test_the_key_stands_for_the_user_and_for_every_host_and_only_we_can_read_it(
    modules: tuple[ModuleType, ...], tmp_path: Path
) -> None:
    source, folder = tmp_path / "secret", tmp_path / "own"
    source.mkdir()
    folder.mkdir()
    (source / "ssh-privatekey").write_text("PRIVATE\n")
    (source / "ssh-publickey").write_text("ecdsa-sha2-nistp256 AAAA")
    modules[1].place_key(source, folder)
    assert (folder / "key").read_text() == "PRIVATE\n"
    assert (folder / "authorized_keys").read_text() == "ecdsa-sha2-nistp256 AAAA\n"
    assert (folder / "known_hosts").read_text() == "* ecdsa-sha2-nistp256 AAAA\n"
    assert {path.stat().st_mode & 0o077 for path in folder.iterdir()} == {0}


def test_a_key_that_is_not_there_and_a_user_without_a_name_are_told_with_what_to_do(
    modules: tuple[ModuleType, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, shell, launcher = modules
    with pytest.raises(launcher.LaunchError, match=r"ssh key cannot be read: .*ssh-privatekey"):
        shell.place_key(tmp_path, tmp_path)
    monkeypatch.setattr(shell.os, "getuid", lambda: 4_000_000_000)
    with pytest.raises(launcher.LaunchError, match=r"none for uid 4000000000: add it in the image \(useradd\)"):
        shell.user_name()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(launcher.LaunchError, match=r"this image has no ssh, .*install openssh-client in spec.trainer"):
        shell.needed_program("ssh", "openssh-client")


def test_sshd_runs_our_command_alone_for_the_jobs_key_alone(modules: tuple[ModuleType, ...], tmp_path: Path) -> None:
    lines = modules[1].server_config(tmp_path, 29500, "python3 remote_shell.py").splitlines()
    assert {
        "Port 29500",
        "AuthenticationMethods publickey",
        "DisableForwarding yes",
        "PermitTTY no",
        "ForceCommand python3 remote_shell.py",
    } <= set(lines)


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
    modules: tuple[ModuleType, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    ends: dict[int, tuple[int, bool]],
    code: int | None,
    expected: dict[str, Any],
) -> None:
    monkeypatch.setenv("DDPJOB_TERMINATION_LOG", str(tmp_path / "termination-log"))
    mpirun = modules[0]
    for rank, (exit_code, aborted) in ends.items():
        ended(tmp_path, rank, exit_code, aborted=aborted)
    agent = mpirun.MpirunAgent(str(tmp_path))
    agent._context = agent._ranks = mpirun.Ranks(tmp_path)
    agent._judge(code)
    report = json.loads((tmp_path / "termination-log").read_text())
    assert (report["exitCode"], report.get("stopped", False)) == (expected["exitCode"], expected.get("stopped", False))
    assert [failure.get("rank") for failure in report.get("failures", [])] == expected.get("failures", [])


def judged(modules: tuple[ModuleType, ...], folder: Path, code: int, *, of_mpirun: bool = False) -> dict[str, Any]:
    agent = modules[0].MpirunAgent(str(folder))
    agent._context = agent._ranks = modules[0].Ranks(folder)
    agent._judge(code, of_mpirun=of_mpirun)
    report: dict[str, Any] = json.loads((folder / "termination-log").read_text())
    return report


def recorded(folder: Path, rank: int, message: str) -> None:
    file = folder / f"error-{rank}" / "error.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"message": {"message": message, "extraInfo": {"time": 2.0}}}))


@pytest.mark.parametrize("has_ended", [True, False])
def test_a_rank_whose_exception_was_on_its_way_when_mpirun_ended_it_is_told(
    modules: tuple[ModuleType, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_ended: bool
) -> None:
    monkeypatch.setenv("DDPJOB_TERMINATION_LOG", str(tmp_path / "termination-log"))
    ended(tmp_path, 2, -15, aborted=True)
    if not has_ended:
        (tmp_path / "2.ended").unlink()
    ended(tmp_path, 3, -15, aborted=True)
    recorded(tmp_path, 2, "ValueError: bad batch")
    report = judged(modules, tmp_path, 1)
    (failure,) = report["failures"]
    assert (failure["rank"], failure["exitCode"], failure["errorType"]) == (2, 1, "ValueError")


def test_a_rank_that_leaves_by_agreement_is_no_failure_however_it_ends(
    modules: tuple[ModuleType, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDPJOB_TERMINATION_LOG", str(tmp_path / "termination-log"))
    ended(tmp_path, 2, 143)
    ended(tmp_path, 3, -9, aborted=True)
    recorded(tmp_path, 3, "Stopped: 143")
    assert judged(modules, tmp_path, 1)["stopped"] is True


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (-9, {"signal": "SIGKILL", "message": "mpirun itself was killed by SIGKILL"}),
        (14, {"exitCode": 14, "message": "connection lost: mpirun ended all ranks, with exit code 14"}),
    ],
)
def test_what_mpirun_itself_ended_with_is_told_where_it_ran(
    modules: tuple[ModuleType, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    code: int,
    expected: dict[str, Any],
) -> None:
    monkeypatch.setenv("DDPJOB_TERMINATION_LOG", str(tmp_path / "termination-log"))
    ended(tmp_path, 0, -15, aborted=True)
    report = judged(modules, tmp_path, code, of_mpirun=True)
    (failure,) = report["failures"]
    assert failure.get("signal") == expected.get("signal")
    assert failure.get("exitCode") == expected.get("exitCode")
    assert failure["message"].startswith(expected["message"])


def test_of_all_nodes_that_are_waited_for_the_first_is_told_with_the_number_of_the_others(
    modules: tuple[ModuleType, ...],
) -> None:
    told: list[tuple[str, str]] = []
    page = SimpleNamespace(tell=lambda *words: told.append(words))
    missing = modules[0].MissingNodes(page)
    missing.of(7).tell("NodeNotReached", "seven")
    missing.of(3).tell("NameNotResolved", "three")
    missing.of(7).tell("NodeNotReached", "seven again")
    missing.found(3)
    missing.found(7)
    assert told == [
        ("NodeNotReached", "seven"),
        ("NameNotResolved", "three, and 1 more"),
        ("NameNotResolved", "three, and 1 more"),
        ("NodeNotReached", "seven again"),
    ]


def test_who_may_not_log_in_cannot_serve_ssh(modules: tuple[ModuleType, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    _, shell, launcher = modules
    nobody = SimpleNamespace(pw_name="nobody", pw_shell="/usr/sbin/nologin")
    monkeypatch.setattr(shell.pwd, "getpwuid", lambda _: nobody)
    with pytest.raises(launcher.CannotStart, match=r"for nobody is /usr/sbin/nologin: give it /bin/sh in the image"):
        shell.user_name()


def test_open_mpi_keeps_a_connection_to_each_node_however_many_there_are(
    modules: tuple[ModuleType, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment: dict[str, str] = {}
    monkeypatch.setattr(modules[0].os, "environ", environment)
    modules[0]._use(SimpleNamespace(command=["ssh", "-F", "config"]), 200)
    for prefix, name in (("OMPI_MCA", "plm_rsh"), ("PRTE_MCA", "plm_ssh")):
        assert environment[f"{prefix}_{name}_agent"] == "ssh -F config"
        assert environment[f"{prefix}_{name}_num_concurrent"] == "200"
    assert environment["PRTE_MCA_prte_leave_session_attached"] == "1"


def test_a_rank_that_begins_and_ends_meanwhile_is_never_half_read(
    modules: tuple[ModuleType, ...], tmp_path: Path
) -> None:
    ended(tmp_path, 0, -signal.SIGKILL)
    (tmp_path / "1.begun").write_text('{"localRank": 1, "pid": 7}')
    (tmp_path / "1.ended.new").write_text('{"localRank": 1, "co')
    ranks = modules[0].Ranks(tmp_path)
    # The number of a process that has ended may be another's by now.
    assert ranks.pids() == {1: 7}
    assert list(ranks.ended()) == [0]
