"""What the launcher raises where a user can do something about it."""


class LaunchError(Exception):
    """Something that the user has to put right; the message says what."""


class CannotStart(LaunchError):  # noqa: N818 -- the reason in the job's status
    """Something that the next try would meet again, since the image or the spec lacks it."""
