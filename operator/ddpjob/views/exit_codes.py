"""The exit codes of `ddpjob`, and the code of each error."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from ddpjob_core.api.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    DDPJobError,
    Invalid,
    JobFailed,
    NotFound,
    TooLong,
    Unexpected,
)


class ExitCode(IntEnum):
    """How `ddpjob` ends."""

    OK = 0
    """Done; a followed job has succeeded."""
    FAILED = 1
    """The followed job has failed, or a check of `ddpjob doctor` has."""
    USAGE = 2
    """An option, a file or a field of the job is wrong, or the job's state forbids what was asked for."""
    CLUSTER = 3
    """The API server cannot be reached, or does not let the user do this."""
    NOT_FOUND = 4
    """The job, attempt or log does not exist."""
    INTERRUPTED = 130
    """Ctrl-C; a job that was followed keeps running."""


_CODES: Final[Mapping[type[DDPJobError], ExitCode]] = {
    DDPJobError: ExitCode.USAGE,
    JobFailed: ExitCode.FAILED,
    TooLong: ExitCode.FAILED,
    ApiError: ExitCode.CLUSTER,
    NotFound: ExitCode.NOT_FOUND,
    AlreadyExists: ExitCode.USAGE,
    Conflict: ExitCode.FAILED,
    Invalid: ExitCode.USAGE,
    Unexpected: ExitCode.USAGE,
}


def exit_code(error: DDPJobError) -> ExitCode:
    """The code with which the command line ends at this error: that of its class, or of the nearest one above."""
    return next(_CODES[kind] for kind in type(error).__mro__ if kind in _CODES)
