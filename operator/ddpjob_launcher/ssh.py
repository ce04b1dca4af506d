"""ssh between the pods of a job, for mpirun: node 0 is the client, every other node serves.

Nothing here is root, so sshd listens on the port of the rendezvous, which is free on every node except the first. One
key per job, which the operator keeps in a Secret, stands for user and hosts alike. sshd calls `run` for whatever the
client asks for, because it does not hand on the container's environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

from .commands import command
from .errors import CannotStart, LaunchError
from .files import write_whole
from .ssh_config import client_config, place_key, server_config, user_name

KEY_FOLDER = Path("/ddpjob-ssh")
# Connections that node 0 opens at a time.
AT_A_TIME = 32
# Seconds that a node may take to end when it is asked to, and that it waits for node 0's report once its sessions have
# ended.
LAST_WORD = 10.0
_END_ORDER = "ddpjob-end"
_PROBE = "true"


def needed_program(name: str, package: str) -> str:
    """Path of a program that the image must have; a CannotStart where it does not."""
    # sshd is seldom in the path of a user other than root.
    found = shutil.which(name) or (shutil.which(name, path="/usr/sbin:/usr/local/sbin") if name == "sshd" else None)
    if not found:
        raise CannotStart(
            f"this image has no {name}, which the launcher mpirun needs: install {package} in spec.trainer.image, "
            "or choose another spec.launcher"
        )
    return found


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
        line = [*self.command, address, _PROBE]
        try:
            answer = subprocess.run(
                line, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=60, text=True, check=False
            )
        except subprocess.TimeoutExpired as error:
            return str(error)
        return (answer.stderr.strip() or f"ssh ended with exit code {answer.returncode}") if answer.returncode else ""

    def report_end(self, addresses: list[str], code: int) -> None:
        """Report to nodes that mpirun has ended, and wait until they have too: this node is to be the last."""

        def report(address: str) -> None:
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
            list(pool.map(report, addresses))


class Server:
    """The side of any other node: an sshd, and what came in by it."""

    def __init__(self, folder: Path, port: int) -> None:
        """Start sshd with files in `folder`; a LaunchError where something is missing."""
        program = needed_program("sshd", "openssh-server")
        user_name()
        if os.getuid() == 0:
            # Where sshd as root confines the process that talks to a client before it has logged in.
            try:
                Path("/run/sshd").mkdir(mode=0o755, parents=True, exist_ok=True)
            except OSError as error:
                raise CannotStart(
                    f"sshd as root needs the folder /run/sshd, which cannot be created ({error}): "
                    "mount an emptyDir there, or run as another user with spec.trainer.securityContext.runAsUser"
                ) from error
        place_key(KEY_FOLDER, folder)
        write_whole(folder / "environment", dict(os.environ))
        config = folder / "sshd_config"
        config.write_text(server_config(folder, port, " ".join(command("ssh", str(folder)))))
        self._folder = folder
        self._process = subprocess.Popen([program, "-D", "-e", "-f", str(config)], start_new_session=True)

    def check(self) -> None:
        """Raise a LaunchError if sshd has ended."""
        code = self._process.poll()
        if code is not None:
            raise LaunchError(f"sshd ended with exit code {code}: see the lines above")

    def sessions(self) -> list[bool]:
        """For each command that has come in, whether it still runs."""
        numbers = (path.name.partition("-")[2] for path in self._folder.glob("session-*"))
        return [Path("/proc", number).exists() for number in numbers]

    def reported_end(self) -> int | None:
        """The exit code of mpirun, once node 0 has reported it."""
        path = self._folder / "end"
        return int(json.loads(path.read_text())) if path.exists() else None


def address_of(host: str) -> str:
    """The address for a hostfile: IPv4 where there is one, since Open MPI may be built without IPv6."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return str(found[0][4][0])


def run(arguments: list[str]) -> NoReturn:
    """Do what came in: the end is noted; a command is run in the environment of this container."""
    folder, asked = Path(arguments[0]), os.environ.get("SSH_ORIGINAL_COMMAND", _PROBE)
    order = asked.split()
    if order[:1] == [_END_ORDER]:
        write_whole(folder / "end", int(order[1]))
        # The connection ends with this container, by which node 0 sees that it has ended.
        threading.Event().wait()
    environment: dict[str, str] = json.loads((folder / "environment").read_text())
    if asked != _PROBE:
        write_whole(folder / f"session-{os.getpid()}", {})
    os.execve("/bin/sh", ["sh", "-c", asked], environment)  # noqa: S606 -- a remote shell is what this is
