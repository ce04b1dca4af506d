"""Whether the ranks still train one model, by what they know of each other after a log step."""

from ddpjob_trainer.observability.log_steps import Agreed
from ddpjob_trainer.process.environment import MisuseError


def check_together(step: int, agreed: Agreed, *, replaced: bool) -> None:
    """Check that the ranks change their parameters alike; on all of them, with the same result.

    Args:
        step: the number of the log step.
        agreed: what the ranks know of each other; of its own each has given its learning rate last.
        replaced: whether a rank was replaced, by a process that begins the program again.

    Raises:
        MisuseError: they do not.
    """
    if agreed.apart:
        raise MisuseError(
            f"the gradients of step {step} differ between the ranks, so that each would train a model of its own: the "
            "forward pass must call the model that all ranks train together, which is the one that the loss of `train` "
            "is given, or that session.model() has returned"
        )
    if replaced and len({rate for *_, rate in agreed.own}) > 1:
        raise MisuseError(
            f"the learning rates of step {step} differ between the ranks since one of them was replaced, so that each "
            "would train a model of its own: what changes them must be kept, as by "
            'session.keep("scheduler", ...), or follow from the number of the step alone'
        )
