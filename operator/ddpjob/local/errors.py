"""What cannot be done without a cluster."""

from ddpjob_core.api.errors import UsageProblem


class LocalError(UsageProblem):
    """A DDPJob that cannot run on this machine as it is. The message names the field and says what to do."""
