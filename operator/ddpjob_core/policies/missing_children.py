"""Objects that the pods share, deleted by hand after they were created.

A service or a NetworkPolicy that is gone is seen at once, and so is a policy that does not say what it should.
That a ConfigMap, a Secret or a claim is gone shows only in pods that wait for their volumes: while they do, it is asked
for now and then (`unmounted.py`), and never while all pods run.
"""

from ddpjob_core.api.kubernetes import Manifest, ObjectName, object_name
from ddpjob_core.children.actions import Create
from ddpjob_core.children.network_policy import needed_network_policy
from ddpjob_core.children.service import build_service
from ddpjob_core.children.shared import mounted_names, unwatched_children
from ddpjob_core.observations.observed import RejectionKind
from ddpjob_core.observations.refusals import TRY_AGAIN_AFTER, taken_names
from ddpjob_core.observations.situation import Situation
from ddpjob_core.observations.unmounted import next_check, unmounted_since
from ddpjob_core.policies.decision import Decision


def missing_children(situation: Situation) -> Decision | None:
    """What is missing is created again while the pods of the attempt wait or run."""
    if not situation.status.pods_created:
        return None
    since = unmounted_since(situation)
    refused = {each.object: each.kind for each in situation.observed.rejections}
    unwatched = () if since is None else _unwatched(situation)
    names = [object_name(manifest) for manifest in unwatched]
    if any(_holds_the_old_claim(name, refused) for name in names):
        # The pods that wait for the claim keep it from going. They have not begun, so nothing is lost with them.
        update = {"attempt": situation.status.attempt + 1, "pods_created": False, "attempt_start_time": None}
        return Decision(situation.status.model_copy(update=update), transition=True)
    checks = {name: next_check(situation, name, since) for name in names} if since is not None else {}
    due = [manifest for manifest in unwatched if checks[object_name(manifest)] <= situation.now]
    taken = taken_names(situation)
    if situation.observed.service is None and not taken:
        due.append(build_service(situation.job, situation.spec))
    policy = needed_network_policy(situation)
    if policy is not None and not taken:
        due.append(policy)
    again = [situation.now + TRY_AGAIN_AFTER] if refused or taken else []
    if not (due or checks or again):
        return None
    return Decision(situation.status, tuple(map(Create, due)), requeue_at=(*checks.values(), *again))


def _unwatched(situation: Situation) -> tuple[Manifest, ...]:
    job, spec = situation.job, situation.spec
    return unwatched_children(job, spec, *mounted_names(job, spec, situation.attempt.present))


def _holds_the_old_claim(name: ObjectName, refused: dict[ObjectName, RejectionKind]) -> bool:
    return name.kind == "PersistentVolumeClaim" and refused.get(name) is RejectionKind.BEING_DELETED
