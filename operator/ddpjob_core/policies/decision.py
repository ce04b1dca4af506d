"""What a policy answers."""

from dataclasses import dataclass
from datetime import datetime

from ddpjob_core.api.status import DDPJobStatus
from ddpjob_core.children.actions import Action


@dataclass(frozen=True, slots=True)
class Decision:
    """A policy's answer: what the status should say, and what is to be done after it has been written.

    `transition` tells that the job entered another state, which has to be written before anything else happens.
    `unwritten` tells that nothing is worth a write yet. `look_again` are moments at which time alone may change
    the answer.
    """

    status: DDPJobStatus
    actions: tuple[Action, ...] = ()
    transition: bool = False
    unwritten: bool = False
    look_again: tuple[datetime, ...] = ()
