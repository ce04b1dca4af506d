"""ssh between the pods of a job: what ssh and sshd are given, and what an image lacks for them."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from ddpjob_launcher import ssh_config
from ddpjob_launcher.errors import CannotStart, LaunchError
from ddpjob_launcher.ssh import needed_program
from ddpjob_launcher.ssh_config import place_key, server_config, user_name


def test_the_key_stands_for_the_user_and_for_every_host_and_only_we_can_read_it(tmp_path: Path) -> None:
    source, folder = tmp_path / "secret", tmp_path / "own"
    source.mkdir()
    folder.mkdir()
    (source / "ssh-privatekey").write_text("PRIVATE\n")
    (source / "ssh-publickey").write_text("ecdsa-sha2-nistp256 AAAA")
    place_key(source, folder)
    assert (folder / "key").read_text() == "PRIVATE\n"
    assert (folder / "authorized_keys").read_text() == "ecdsa-sha2-nistp256 AAAA\n"
    assert (folder / "known_hosts").read_text() == "* ecdsa-sha2-nistp256 AAAA\n"
    assert {path.stat().st_mode & 0o077 for path in folder.iterdir()} == {0}


def test_a_key_that_is_not_there_and_a_user_without_a_name_come_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LaunchError, match=r"ssh key cannot be read: .*ssh-privatekey"):
        place_key(tmp_path, tmp_path)
    monkeypatch.setattr(ssh_config.os, "getuid", lambda: 4_000_000_000)
    with pytest.raises(LaunchError, match=r"none for uid 4000000000: add one to the image \(useradd\)"):
        user_name()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LaunchError, match=r"this image has no ssh, .*install openssh-client in spec.trainer"):
        needed_program("ssh", "openssh-client")


def test_sshd_runs_our_command_alone_for_the_jobs_key_alone(tmp_path: Path) -> None:
    lines = server_config(tmp_path, 29500, "python3 launcher.pyz").splitlines()
    assert {
        "Port 29500",
        "AuthenticationMethods publickey",
        "DisableForwarding yes",
        "PermitTTY no",
        "ForceCommand python3 launcher.pyz",
    } <= set(lines)


def test_who_may_not_log_in_cannot_serve_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = SimpleNamespace(pw_name="nobody", pw_shell="/usr/sbin/nologin")
    monkeypatch.setattr(ssh_config.pwd, "getpwuid", lambda _: nobody)
    with pytest.raises(CannotStart, match=r"for nobody is /usr/sbin/nologin: make it /bin/sh in the image"):
        user_name()
