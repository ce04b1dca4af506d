"""What to do about a pod that has no node, or whose containers do not start."""

import re
from typing import Final

from ddpjob_core.api.names import launcher_name

_CLAIMS: Final = "compare spec.checkpoint.claimName and the claims of spec.template with kubectl get pvc"
_NAMED: Final = re.compile(r'(?i)(configmap|secret) "([^"/]+/)?([^"/]+)"')


def remedy_of_scheduling(message: str) -> str:
    """What to do about a pod without a node.

    Args:
        message: the scheduler's.
    """
    if "persistentvolumeclaim" in message.lower():
        return _CLAIMS
    if "free ports" in message:
        return "choose other ports, or wait until the job that has them ends: kubectl get ddpjobs -A"
    return "compare spec.trainer.resources, nodeSelector and tolerations with kubectl describe nodes"


def remedy_of_start(job: str, pod: str, message: str) -> str:
    """What to do about a pod that is not started on its node.

    Args:
        job: name of the job.
        pod: name of the pod.
        message: the kubelet's.
    """
    if "failed to sync" in message:
        return f"nothing unless it lasts: the kubelet reads it again. Then: kubectl describe pod {pod}"
    named = _NAMED.search(message)
    if named is not None:
        return _remedy_of_object(job, named[1].lower(), named[3])
    if "persistentvolumeclaim" in message.lower() or "pvc" in message.lower():
        return _CLAIMS
    return f"kubectl describe pod {pod} shows what happened before"


def _remedy_of_object(job: str, kind: str, name: str) -> str:
    if name.startswith((launcher_name(job, ""), f"{job}-ssh-")):
        return "the operator creates it again; if not, ddpjob doctor without a name checks the operator"
    if name == f"{job}-program":
        return f"it holds the script of ddpjob run: ddpjob delete {job}, then run it again"
    return f"create it, or correct its name in spec.trainer or spec.template: kubectl get {kind}s"
