"""What ssh and sshd are given: configurations, the job's key, and a user."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from .errors import CannotStart, LaunchError


def client_config(folder: Path, port: int) -> str:
    """The configuration of ssh: no other file of the image or of its user is read."""
    return "\n".join(
        (
            f"Port {port}",
            f"User {user_name()}",
            f"IdentityFile {folder}/key",
            "IdentitiesOnly yes",
            f"UserKnownHostsFile {folder}/known_hosts",
            "GlobalKnownHostsFile none",
            "StrictHostKeyChecking yes",
            "BatchMode yes",
            "ConnectTimeout 10",
            "ServerAliveInterval 10",
            "ServerAliveCountMax 3",
            "LogLevel ERROR",
            "",
        )
    )


def server_config(folder: Path, port: int, command: str) -> str:
    """The configuration of sshd: the owner of the job's key may run `command`, and nothing else is offered."""
    return "\n".join(
        (
            f"Port {port}",
            f"HostKey {folder}/key",
            f"AuthorizedKeysFile {folder}/authorized_keys",
            "AuthenticationMethods publickey",
            # The folder is private, but lies in one that everybody may write to.
            "StrictModes no",
            "PidFile none",
            "UsePAM no",
            "PermitRootLogin prohibit-password",
            "DisableForwarding yes",
            "PermitTTY no",
            "PermitUserRC no",
            "LogLevel ERROR",
            f"ForceCommand {command}",
            "",
        )
    )


def user_name() -> str:
    """The name of the user that this runs as; a CannotStart where it has none, or may not log in."""
    other_user = "or run as another user with spec.trainer.securityContext.runAsUser"
    try:
        user = pwd.getpwuid(os.getuid())
    except KeyError as error:
        raise CannotStart(
            f"ssh needs a user with a name, and the image has none for uid {os.getuid()}: "
            f"add one to the image (useradd), {other_user}"
        ) from error
    # sshd starts every command by the user's shell.
    if Path(user.pw_shell).name in ("nologin", "false"):
        raise CannotStart(
            f"sshd runs commands with the user's shell, which for {user.pw_name} is {user.pw_shell}: "
            f"make it /bin/sh in the image (usermod -s), {other_user}"
        )
    return user.pw_name


def place_key(source: Path, folder: Path) -> None:
    """Copy the job's key, which ssh wants to be readable for its owner alone; a LaunchError where it is missing."""
    try:
        private = (source / "ssh-privatekey").read_text()
        public = (source / "ssh-publickey").read_text().strip()
    except OSError as error:
        raise LaunchError(f"the job's ssh key cannot be read: {error}") from error
    for name, content in (
        ("key", private),
        ("authorized_keys", f"{public}\n"),
        ("known_hosts", f"* {public}\n"),
    ):
        (folder / name).touch(0o600)
        (folder / name).write_text(content)
