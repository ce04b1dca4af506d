"""spec.elastic.spareNodes: pods that are kept ready to take the place of a lost node.

Which there are to be is written first. None of them counts in any rule, and none keeps the job from anything.
"""

from ddpjob_core.api.names import spare_pod_name
from ddpjob_core.api.spares import SparePod, Spares
from ddpjob_core.children.actions import Action, CreatePod, DeleteStray
from ddpjob_core.children.deletions import ABANDONED_GRACE_SECONDS, abandoned_pods
from ddpjob_core.children.spare_pod import node_reference
from ddpjob_core.observations.membership import have_ended
from ddpjob_core.observations.observed import PodRecord, Terminated
from ddpjob_core.observations.situation import Situation
from ddpjob_core.observations.spare_nodes import (
    asked_for_at,
    has_failed,
    longest_wait,
    may_have_spares,
    name_fits,
    next_number,
    replaced_at,
    spares_of_attempt,
    waiting_spares,
    without_room,
)
from ddpjob_core.policies.create import spare_pods_of, unknown_children
from ddpjob_core.policies.decision import Decision


def spare_nodes(situation: Situation) -> Decision | None:
    """An elastic job whose spares are to be others than the status says."""
    membership, elastic = situation.membership, situation.spec.elastic
    if membership is None or elastic is None or not situation.status.pods_created or have_ended(situation):
        return None
    known = spares_of_attempt(situation)
    kept, failed = _kept(situation)
    again = known
    if failed:
        again = again.model_copy(update={"failures": _failures(situation, known), "time": situation.now})
    missing = _missing(
        situation, again, len(kept), at_once=any(isinstance(_trainer(pod), Terminated) for _, pod in failed)
    )
    if missing:
        begin = next_number(situation)
        numbers = [number for number in range(begin, begin + missing) if name_fits(situation, number)]
        kept = [*kept, *(SparePod(number=number) for number in numbers)]
        last = max([known.last, *numbers])
        again = again.model_copy(update={"last": last, "time": situation.now if numbers else again.time})
    changed = again.model_copy(update={"waiting": kept or None})
    if changed == known:
        return None
    seen = changed.model_copy(update={"waiting": None}) == known.model_copy(update={"waiting": None})
    numbers_only = [each.number for each in kept] == [each.number for each in known.waiting or ()]
    # That a pod was seen is worth no write of its own at once: an operator that dies before creates it once more.
    status = situation.status.model_copy(update={"membership": membership.model_copy(update={"spares": changed})})
    job, number = situation.job.name, situation.attempt.number
    strays = tuple(
        DeleteStray(spare_pod_name(job, number, spare), ABANDONED_GRACE_SECONDS) for spare, pod in failed if pod is None
    )
    # Until it is written, nothing behind this policy is asked.
    return Decision(status, (*abandoned_pods(situation), *strays), transition=not (seen and numbers_only))


def spare_actions(situation: Situation) -> tuple[Action, ...]:
    """The creation of the pods of spares that are to be and have not been seen.

    Args:
        situation: in which the spares are those of the status that has been written.
    """
    if not may_have_spares(situation):
        return ()
    numbers = [each.number for each in waiting_spares(situation) if not each.created]
    pods: tuple[CreatePod, ...] = spare_pods_of(
        [number for number in numbers if number not in situation.attempt.spares], situation
    )
    return (*unknown_children(situation), *pods) if pods else ()


def _kept(situation: Situation) -> tuple[list[SparePod], list[tuple[int, PodRecord | None]]]:
    """The spares that stay, and those that have failed, with their pods."""
    kept: list[SparePod] = []
    failed: list[tuple[int, PodRecord | None]] = []
    calm, needed = may_have_spares(situation), without_room(situation)
    for each in waiting_spares(situation):
        pod = situation.attempt.spares.get(each.number)
        if pod is None and not each.created:
            kept.extend([each] if calm else [])
        elif has_failed(pod):
            if situation.now >= replaced_at(situation, pod):
                failed.append((each.number, pod))
            else:
                kept.append(each.model_copy(update={"created": True}))
        elif pod is not None and not needed and (calm or pod.scheduled):
            kept.append(each.model_copy(update={"created": True}))
    # Those that have waited longest are the most likely to be ready.
    return kept[: _wanted(situation)], failed


def _wanted(situation: Situation) -> int:
    elastic = situation.spec.elastic
    if elastic is None or not elastic.spare_nodes or node_reference(situation.spec) is not None:
        return 0
    return elastic.spare_nodes


def _missing(situation: Situation, known: Spares, there: int, *, at_once: bool) -> int:
    if not may_have_spares(situation) or without_room(situation):
        return 0
    if not at_once and situation.now < asked_for_at(situation, known):
        return 0
    return max(0, _wanted(situation) - there)


def _failures(situation: Situation, known: Spares) -> int:
    """Failures in a row, with this one: one that had lasted begins another row."""
    lasted = known.time is not None and situation.now >= known.time + 2 * longest_wait(situation)
    return 1 if lasted else known.failures + 1


def _trainer(pod: PodRecord | None) -> object:
    return None if pod is None else pod.trainer
