"""ssh between the pods of a job, for mpirun: node 0 is the client, every other node serves.

Delivered beside launcher.py, under the same rules: the standard library only, Python >= 3.8. Nobody here is root, so
sshd listens on the port of the rendezvous, which is free on every node but the first. One key for each job, which the
operator keeps in a Secret, stands for user and hosts alike. sshd runs this file for whatever the client asks for,
because it does not hand on the container's environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from ddpjob_launcher import launcher
else:
    # The one beside this file, not that of a package which an image may have.
    import launcher

KEY_FOLDER = Path("/ddpjob-ssh")
# Connections that node 0 opens at a time.
AT_A_TIME = 32
# Seconds that a node may take to end when it is told so, and that it waits for a word of node 0 once that has left.
LAST_WORD = 10.0
_END_ORDER = "ddpjob-end"
_PROBE = "true"


def client_config(folder: Path, port: int) -> str:
    """The configuration of ssh: no file of the image or of its user is read beside it."""
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
    """The configuration of sshd: whoever has the job's key may run `command`, and nothing else is offered."""
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
    try:
        user = pwd.getpwuid(os.getuid())
    except KeyError as error:
        raise launcher.CannotStart(
            f"ssh needs a user with a name, and the image has none for uid {os.getuid()}: "
            "add it in the image (useradd), or run as another by spec.trainer.securityContext.runAsUser"
        ) from error
    # sshd starts whatever it starts by the user's shell.
    if Path(user.pw_shell).name in ("nologin", "false"):
        raise launcher.CannotStart(
            f"ssh runs what it is asked for by the user's shell, which for {user.pw_name} is {user.pw_shell}: "
            "give it /bin/sh in the image (usermod -s), or run as another by spec.trainer.securityContext.runAsUser"
        )
    return user.pw_name


def place_key(source: Path, folder: Path) -> None:
    """Copy the job's key, of which ssh wants that nobody else can read it; a LaunchError where it is not there."""
    try:
        private = (source / "ssh-privatekey").read_text()
        public = (source / "ssh-publickey").read_text().strip()
    except OSError as error:
        raise launcher.LaunchError(f"the job's ssh key cannot be read: {error}") from error
    for name, content in (
        ("key", private),
        ("authorized_keys", f"{public}\n"),
        ("known_hosts", f"* {public}\n"),
    ):
        (folder / name).touch(0o600)
        (folder / name).write_text(content)


def needed_program(name: str, package: str) -> str:
    """Path of a program that the image must have; a CannotStart where it has not."""
    # sshd is seldom in the path of somebody who is not root.
    found = shutil.which(name) or (shutil.which(name, path="/usr/sbin:/usr/local/sbin") if name == "sshd" else None)
    if not found:
        raise launcher.CannotStart(
            f"this image has no {name}, which the launcher mpirun needs: install {package} in spec.trainer.image, "
            "or choose another spec.launcher"
        )
    return found


def write_whole(path: Path, content: object) -> None:
    """Write JSON so that a reader finds all of it or no file."""
    new = path.with_name(f"{path.name}.new")
    new.touch(0o600)
    new.write_text(json.dumps(content))
    new.replace(path)


class Client:
    """Node 0's side."""

    def __init__(self, folder: Path, port: int) -> None:
        """Prepare ssh with files in `folder`; a LaunchError where something is missing."""
        config = folder / "ssh_config"
        self.command = [needed_program("ssh", "openssh-client"), "-F", str(config)]
        place_key(KEY_FOLDER, folder)
        config.write_text(client_config(folder, port))

    def probe(self, address: str) -> str:
        """Run nothing there; what ssh says if it cannot."""
        command = [*self.command, address, _PROBE]
        try:
            answer = subprocess.run(
                command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=60, text=True, check=False
            )
        except subprocess.TimeoutExpired as error:
            return str(error)
        return (answer.stderr.strip() or f"ssh ended with exit code {answer.returncode}") if answer.returncode else ""

    def tell_end(self, addresses: list[str], code: int) -> None:
        """Tell nodes that mpirun has ended, and wait until they have too: who tells is to be the last."""

        def tell(address: str) -> None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(
                    [*self.command, address, _END_ORDER, str(code)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    timeout=LAST_WORD,
                    check=False,
                )

        with ThreadPoolExecutor(AT_A_TIME) as pool:
            list(pool.map(tell, addresses))


class Server:
    """The side of any other node: an sshd, and what came in by it."""

    def __init__(self, folder: Path, port: int) -> None:
        """Start sshd with files in `folder`; a LaunchError where something is missing."""
        program = needed_program("sshd", "openssh-server")
        user_name()
        if os.getuid() == 0:
            # Where sshd as root locks the process in that talks to who has not logged in yet.
            try:
                Path("/run/sshd").mkdir(mode=0o755, parents=True, exist_ok=True)
            except OSError as error:
                raise launcher.CannotStart(
                    f"sshd as root needs the folder /run/sshd, which cannot be made ({error}): "
                    "mount an emptyDir there, or run as another by spec.trainer.securityContext.runAsUser"
                ) from error
        place_key(KEY_FOLDER, folder)
        write_whole(folder / "environment", dict(os.environ))
        config = folder / "sshd_config"
        config.write_text(server_config(folder, port, f"{sys.executable} -u {Path(__file__).absolute()} {folder}"))
        self._folder = folder
        self._process = subprocess.Popen([program, "-D", "-e", "-f", str(config)], start_new_session=True)

    def check(self) -> None:
        """Raise a LaunchError if sshd has ended."""
        code = self._process.poll()
        if code is not None:
            raise launcher.LaunchError(f"sshd ended with exit code {code}: see the lines above")

    def sessions(self) -> list[bool]:
        """Of each command that has come in, whether it still runs."""
        numbers = (path.name.partition("-")[2] for path in self._folder.glob("session-*"))
        return [Path("/proc", number).exists() for number in numbers]

    def told_end(self) -> int | None:
        """The exit code of mpirun, once node 0 has told it."""
        path = self._folder / "end"
        return int(json.loads(path.read_text())) if path.exists() else None


def address_of(host: str) -> str:
    """The address for a hostfile: IPv4 where there is one, since Open MPI may be built without IPv6."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return str(found[0][4][0])


def serve(folder: Path, command: str) -> NoReturn:
    """Do what came in: the end is noted; a command is run in the environment of this container."""
    order = command.split()
    if order[:1] == [_END_ORDER]:
        write_whole(folder / "end", int(order[1]))
        # The connection ends with this container, by which node 0 sees that it has ended.
        threading.Event().wait()
    environment: dict[str, str] = json.loads((folder / "environment").read_text())
    if command != _PROBE:
        write_whole(folder / f"session-{os.getpid()}", {})
    os.execve("/bin/sh", ["sh", "-c", command], environment)  # noqa: S606 -- a remote shell is what this is


if __name__ == "__main__":
    serve(Path(sys.argv[1]), os.environ.get("SSH_ORIGINAL_COMMAND", _PROBE))
