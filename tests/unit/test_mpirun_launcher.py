"""The parts of the launcher mpirun that need neither mpirun nor sshd: files, names, and how a node's end is judged."""

import importlib
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ddpjob import launcher as package

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


def test_a_rank_that_begins_and_ends_meanwhile_is_never_half_read(
    modules: tuple[ModuleType, ...], tmp_path: Path
) -> None:
    ended(tmp_path, 0, -signal.SIGKILL)
    (tmp_path / "1.ended.new").write_text('{"localRank": 1, "co')
    ranks = modules[0].Ranks(tmp_path)
    assert ranks.pids() == {0: 1}
    assert list(ranks.ended()) == [0]
