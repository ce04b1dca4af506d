"""The ranks of a node under mpirun: what runs one, and what it leaves in the node's folder for the agent."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from .commands import command
from .files import write_whole
from .signals import AGREED_STOP, STOP_SIGNALS, container_code

# Names the node's folder in the environment of its ranks.
FOLDER = "DDPJOB_NODE_FOLDER"
# There from the moment on at which this node is to stop.
STOPPING = "stopping"


class Ranks:
    """The ranks of this node, by the files that they leave in its folder."""

    def __init__(self, folder: Path) -> None:
        """Look into a folder that exists."""
        self._folder = folder
        self.error_files: dict[int, str] = {}

    def begun(self) -> dict[int, dict[str, int]]:
        """Rank to its local rank and process id."""
        return self._read(".begun")

    def ended(self) -> dict[int, dict[str, int]]:
        """Rank to its local rank, its worker's exit code (negative for a signal), and whether mpirun ended it."""
        return self._read(".ended")

    def pids(self) -> dict[int, int]:
        """Local rank to process id of the workers that have not ended."""
        ended = self.ended()
        return {entry["localRank"]: entry["pid"] for rank, entry in self.begun().items() if rank not in ended}

    def failures(self) -> dict[int, Any]:
        """Rank to the end of each worker that failed by itself, in the words of torch's ProcessFailure.

        One that mpirun has ended counts where it has recorded an exception before: that it was about to leave by itself
        may be the reason why another lost the connection to it, and was quicker.
        """
        found: dict[int, Any] = {}
        ended = self.ended()
        for rank, begun in self.begun().items():
            end = ended.get(rank, {**begun, "code": -signal.SIGKILL, "time": int(time.time()), "aborted": True})
            file = _error_file(self._folder, rank)
            data: dict[str, Any] = {}
            with contextlib.suppress(OSError, ValueError):
                data = json.loads(file.read_text())
            self.error_files[end["localRank"]] = str(file)
            if end["code"] == 0 or (end["aborted"] and (not data or _left_on_purpose(end["code"], data))):
                continue
            found[rank] = SimpleNamespace(
                local_rank=end["localRank"],
                exitcode=1 if end["aborted"] and end["code"] < 0 else end["code"],
                error_file=str(file),
                error_file_data=data,
                timestamp=end["time"],
            )
        return found

    def agreed_to_stop(self) -> bool:
        """Whether ranks have saved and left together, and none has failed."""
        codes = [end["code"] for end in self.ended().values() if not end["aborted"]]
        return AGREED_STOP in codes and all(code in (0, AGREED_STOP) for code in codes)

    def _read(self, ending: str) -> dict[int, dict[str, int]]:
        found: dict[int, dict[str, int]] = {}
        for path in self._folder.glob(f"*{ending}"):
            with contextlib.suppress(OSError, ValueError):
                found[int(path.stem)] = json.loads(path.read_text())
        return found


def run(arguments: list[str]) -> int:
    """Run the worker of one rank, and leave how it ended in the node's folder; return the exit code for mpirun.

    The arguments are the program's kind, its path or name, and its own arguments.
    """
    folder, rank = Path(os.environ[FOLDER]), int(os.environ["OMPI_COMM_WORLD_RANK"])
    file = _error_file(folder, rank)
    file.parent.mkdir()
    os.environ["TORCHELASTIC_ERROR_FILE"] = str(file)
    signalled: list[int] = []
    worker = command("worker", "ask", *arguments)
    process = subprocess.Popen(worker, start_new_session=True, preexec_fn=_end_with_parent)  # noqa: PLW1509 -- one thread

    def forward(number: int, _: object) -> None:
        signalled.append(number)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)

    for number in STOP_SIGNALS:
        signal.signal(number, forward)
    begun = {"localRank": int(os.environ["OMPI_COMM_WORLD_LOCAL_RANK"]), "pid": process.pid}
    write_whole(folder / f"{rank}.begun", begun)
    code = process.wait()
    # mpirun alone signals us: the launcher, when it is to stop, signals the worker itself.
    write_whole(folder / f"{rank}.ended", {**begun, "code": code, "time": time.time(), "aborted": bool(signalled)})
    # Because of a rank that has saved and left on purpose mpirun must not end the others.
    on_purpose = code == AGREED_STOP or (folder / STOPPING).exists()
    return 0 if on_purpose else container_code(code)


def _error_file(folder: Path, rank: int) -> Path:
    """Where the worker of a rank records its exception: each in a folder of its own, next to its last stack."""
    return folder / f"error-{rank}" / "error.json"


def _left_on_purpose(code: int, data: dict[str, Any]) -> bool:
    """Whether all ranks agreed upon this end, which leaves a SystemExit as well."""
    message = data.get("message")
    text = str(message.get("message") if isinstance(message, dict) else message)
    return code == AGREED_STOP or text.endswith(f": {AGREED_STOP}")


def _end_with_parent() -> None:
    # PR_SET_PDEATHSIG: mpirun kills the processes that it has started, not their children.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
