"""What can go wrong, for users and for the operator: one set of errors, distinguished by what can be done about them."""
# ruff: noqa: N818 -- the domain's words (NotFound, JobFailed, ...) say more than *Error


class DDPJobError(Exception):
    """Something that the user can put right.

    `str()` says what is wrong, `remedy` what to do about it.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        """Args:
        message: what is wrong, one sentence that names the field, file or object.
        remedy: what to do about it.
        """
        super().__init__(message)
        self.remedy = remedy


class UsageProblem(DDPJobError):
    """An option, a file or a field is wrong, or the job's state forbids what was asked for."""


class JobFailed(DDPJobError):
    """The job has failed permanently; the message holds its root cause."""


class TooLong(DDPJobError):
    """Something did not happen within the time that the caller gave it."""


class ApiError(DDPJobError):
    """A request to the API server that did not succeed. `str()` is the server's own message if it gave one."""


class Unavailable(ApiError):
    """There is no answer for now: no connection, an overloaded server, or concurrent writers.

    A later try may succeed. Whether a write took effect is unknown.
    """

    def __init__(self, message: str, remedy: str = "", after: float | None = None) -> None:
        """Args:
        message: what happened.
        remedy: what to do about it.
        after: seconds that the server asked to wait, None where it did not say.
        """
        super().__init__(message, remedy)
        self.after = after


class NotLeading(Unavailable):
    """This process does not lead, or leads no longer: it must not write."""


class WebhookFailed(Unavailable):
    """An admission webhook that the API server has to ask does not answer, or fails. A later try may succeed."""


class Unauthorized(ApiError):
    """The API server does not accept the credentials. A token may be read again from its file for the next request."""


class Forbidden(ApiError):
    """A missing permission, a quota, an admission webhook or an admission policy refuses it: a later try may succeed."""


class NotFound(ApiError):
    """The object, or its namespace, does not exist."""


class AlreadyExists(ApiError):
    """The name is taken."""


class Conflict(ApiError):
    """The object has changed since it was read, or is not the one (by uid) that was meant."""


class Expired(ApiError):
    """The resource version is too old to watch or list from: list again."""


class Invalid(ApiError):
    """The API server rejects the object; sending it again cannot help.

    `fields` are the paths that it names, each with what is wrong there.
    """

    def __init__(self, message: str, remedy: str = "", fields: tuple[tuple[str, str], ...] = ()) -> None:
        """Args:
        message: the API server's own.
        remedy: what to do about it.
        fields: path and problem, as far as the server named them.
        """
        super().__init__(message, remedy)
        self.fields = fields


class Unexpected(ApiError):
    """An answer that no code here expects: a bug of ours, or the server is not a Kubernetes API server."""
