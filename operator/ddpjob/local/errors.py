"""What cannot be done without a cluster, in a user's words."""

from ddpjob_core.api.errors import UsageProblem


class LocalError(UsageProblem):
    """A DDPJob that cannot run on this machine as it is; the message names the field and says what to do."""
