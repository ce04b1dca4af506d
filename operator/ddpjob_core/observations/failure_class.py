"""status.failure.class: the kinds of failures, and which of two is more likely to have caused the other."""

import re
from enum import StrEnum
from typing import Final

from ddpjob_core.api.restart import CANNOT_START
from ddpjob_core.observations.obstacle import START_REASONS

SIGTERM_EXIT_CODE: Final = 143

_LOST_CONNECTION: Final = re.compile(
    r"connection (was )?(likely )?(closed|reset|refused|lost|aborted)|broken pipe|remote process exited|"
    r"connectFullMesh failed|Rendezvous\w*Error|DistNetworkError|DistStoreError|NCCL.*(system|remote) error",
    re.IGNORECASE,
)
# The runtime's words if the image or the command is wrong: those about the program itself, which runc names after
# `exec:`. Other start errors may pass, even with words like these, such as those about cgroups, mounts, a GPU's driver
# or the disk.
_NO_PROGRAM: Final = re.compile(
    r"executable file (`.*` )?not found|exec format error"
    r'|\bexec: \\?"[^"]*": (.*: )?(no such file or directory|permission denied|is a directory)',
    re.IGNORECASE,
)
_NOT_FINITE: Final = re.compile(r"\bNonFiniteError: ")
"""The exception of ddpjob_trainer."""
_TIMEOUT: Final = re.compile(r"\btimed out\b|watchdog caught collective operation", re.IGNORECASE)


class FailureClass(StrEnum):
    """Kinds of failures."""

    OUT_OF_MEMORY = "OutOfMemory"
    """The kernel killed a process that used more memory than its container may."""
    DISRUPTION = "Disruption"
    """Kubernetes removed the pod: preempted, evicted, drained, its node removed."""
    POD_LOST = "PodLost"
    """The pod was deleted, is gone, or its node does not answer."""
    SIGNAL = "Signal"
    """A process was killed by a signal."""
    ERROR = "Error"
    """The program raised, exited with an error code, or could not be started."""
    NOT_FINITE = "NotFinite"
    """The loss, a gradient or the state of the training became NaN or infinite."""
    STALLED = "Stalled"
    """The training completed no step within spec.progressDeadline."""
    DEADLINE = "Deadline"
    """spec.startupDeadline or spec.activeDeadlineSeconds has passed."""
    COLLECTIVE_TIMEOUT = "CollectiveTimeout"
    """A collective operation did not end in time: another rank did not take part."""
    CONNECTION_LOST = "ConnectionLost"
    """The other end of a connection was lost."""
    WAITING = "Waiting"
    """The nodes that were up have given up waiting for pods that have no node, or that a quota does not allow."""
    STOPPED = "Stopped"
    """The process was asked to stop."""


_LIKELIHOOD: Final = {
    FailureClass.OUT_OF_MEMORY: 0,
    FailureClass.DISRUPTION: 0,
    FailureClass.POD_LOST: 0,
    FailureClass.SIGNAL: 1,
    FailureClass.ERROR: 2,
    FailureClass.NOT_FINITE: 2,
    FailureClass.STALLED: 3,
    FailureClass.DEADLINE: 3,
    FailureClass.WAITING: 3,
    FailureClass.COLLECTIVE_TIMEOUT: 4,
    FailureClass.CONNECTION_LOST: 5,
    FailureClass.STOPPED: 6,
}
_BY_TEXT: Final = (
    (_NOT_FINITE, FailureClass.NOT_FINITE),
    (_LOST_CONNECTION, FailureClass.CONNECTION_LOST),
    (_TIMEOUT, FailureClass.COLLECTIVE_TIMEOUT),
)
CONSEQUENCES: Final = (FailureClass.COLLECTIVE_TIMEOUT, FailureClass.CONNECTION_LOST, FailureClass.STOPPED)
"""Classes of failures that are caused by another failure."""


def likelihood(kind: FailureClass) -> int:
    """Rank among the causes, 0 the most likely: times alone mislead, since the victims of a SIGKILL report first."""
    return _LIKELIHOOD[kind]


def is_permanent(reason: str, text: str) -> bool:
    """Whether the program could not be started, and never can be as it is."""
    return reason == CANNOT_START or (reason in START_REASONS and bool(_NO_PROGRAM.search(text)))


def class_of_process(exit_code: int | None, signal: str | None, text: str, *, out_of_memory: bool) -> FailureClass:
    """The class of the end of a process.

    Args:
        exit_code: of the process itself, None where a signal ended it.
        signal: such as SIGKILL.
        text: its last message.
        out_of_memory: whether the kernel killed it for its memory.
    """
    if out_of_memory:
        return FailureClass.OUT_OF_MEMORY
    if signal == "SIGTERM" or exit_code == SIGTERM_EXIT_CODE:
        # An agent stops its other workers by SIGTERM once one has failed.
        return FailureClass.STOPPED
    if signal:
        return FailureClass.SIGNAL
    return next((kind for words, kind in _BY_TEXT if words.search(text)), FailureClass.ERROR)
