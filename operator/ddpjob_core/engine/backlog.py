"""What one reconcile has left undone of a job's actions, and the next one has to know of.

Nearly everything is asked for again by the next plan, which sees what has been done. What no watch shows is not: a plan
asks for strays once, or again and again whatever became of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ddpjob_core.api.errors import ApiError, Unavailable, WebhookFailed
from ddpjob_core.api.kubernetes import ObjectName
from ddpjob_core.children.actions import Action, DeleteStray, object_of


@dataclass(slots=True)
class Backlog:
    """The deletions of one job that are left.

    Attributes:
        strays: those that were asked for and have not been carried out, in order.
        done: those that have been, as long as a plan still asks for some.
        failed: objects whose action failed last time: they come last, so that they keep no others waiting.
    """

    strays: dict[DeleteStray, None] = field(default_factory=dict)
    done: set[DeleteStray] = field(default_factory=set)
    failed: set[ObjectName] = field(default_factory=set)

    def with_rest(self, actions: Sequence[Action]) -> list[Action]:
        """What is to be done: the actions of a plan, and what is left of those of earlier ones."""
        asked = [action for action in actions if isinstance(action, DeleteStray)]
        if not asked and not self.strays:
            self.done.clear()
        self.strays |= {stray: None for stray in asked if stray not in self.done}
        chosen = [*self.strays, *(action for action in actions if not isinstance(action, DeleteStray))]
        self.failed &= {object_of(action) for action in chosen}
        return sorted(chosen, key=lambda action: object_of(action) in self.failed) if self.failed else chosen

    def carried_out(self, done: set[ObjectName], failures: Mapping[ObjectName, ApiError]) -> None:
        """Note what became of them."""
        for stray in tuple(self.strays):
            name = object_of(stray)
            if name in done:
                self.done.add(stray)
            if name in done or (name in failures and not is_unanswered(failures[name])):
                # What is refused is not asked for again, unless by a plan: nothing else has to wait for it.
                del self.strays[stray]
        self.failed = (self.failed | failures.keys()) - done


def is_unanswered(failure: ApiError) -> bool:
    """Whether the API server does not answer: other requests would fare no better."""
    return isinstance(failure, Unavailable) and not isinstance(failure, WebhookFailed)
