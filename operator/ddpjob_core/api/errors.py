"""What can go wrong for a user of the command line or of the Python API: one sentence, what to do, and an exit code."""
# ruff: noqa: N818 -- the domain's words (NotFound, JobFailed, ...) say more than *Error

from enum import IntEnum


class ExitCode(IntEnum):
    """How `ddpjob` ends, for scripts."""

    OK = 0
    """Done; a followed job has succeeded."""
    FAILED = 1
    """The followed job has failed, or a check of `ddpjob doctor` has."""
    USAGE = 2
    """An option, a file or a field of the job is wrong, or the job's state forbids what was asked for."""
    CLUSTER = 3
    """The API server cannot be reached, or does not let the user do this."""
    NOT_FOUND = 4
    """There is no such job, attempt or log."""
    INTERRUPTED = 130
    """Ctrl-C; a job that was followed goes on."""


class DDPJobError(Exception):
    """Something that the user can put right.

    `str()` says what is wrong, `remedy` what to do, `exit_code` how the command line ends.
    """

    exit_code = ExitCode.USAGE

    def __init__(self, message: str, remedy: str = "") -> None:
        """Args:
        message: what is wrong, one sentence that names the field, file or object.
        remedy: what to do about it.
        """
        super().__init__(message)
        self.remedy = remedy


class UsageProblem(DDPJobError):
    """What was asked for cannot be."""


class ClusterError(DDPJobError):
    """The API server could not or would not do what it was asked."""

    exit_code = ExitCode.CLUSTER


class Unreachable(ClusterError):
    """There is no cluster to talk to, or it does not answer."""


class Unauthorized(ClusterError):
    """The API server does not know the user."""


class Forbidden(ClusterError):
    """The user may not do this, or a quota or an admission webhook refuses it."""


class NotFound(ClusterError):
    """The object is not there."""

    exit_code = ExitCode.NOT_FOUND


class AlreadyExists(ClusterError):
    """The name is taken."""

    exit_code = ExitCode.USAGE


class Conflict(ClusterError):
    """The object has changed since it was read."""

    exit_code = ExitCode.FAILED


class Invalid(ClusterError):
    """The API server calls the object wrong; `fields` are the paths it names, each with what is wrong there."""

    exit_code = ExitCode.USAGE

    def __init__(self, message: str, remedy: str = "", fields: tuple[tuple[str, str], ...] = ()) -> None:
        """Args:
        message: the API server's own.
        remedy: what to do.
        fields: path and problem, as far as the server named them.
        """
        super().__init__(message, remedy)
        self.fields = fields


class Expired(ClusterError):
    """A watch or a list has lost its place: it has to begin anew."""


class TooLong(ClusterError):
    """Something did not happen in the time that the caller gave it."""

    exit_code = ExitCode.FAILED


class JobFailed(DDPJobError):
    """The job has failed for good; the message holds its root cause."""

    exit_code = ExitCode.FAILED
