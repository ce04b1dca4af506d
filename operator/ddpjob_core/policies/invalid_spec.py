"""A spec that cannot work: reported with its field, never raised and never retried."""

from ddpjob_core.api.constants import INVALID_SPEC, MAX_PROCESSES, MAX_RANKS
from ddpjob_core.api.spec import Backend, DDPJobSpec
from ddpjob_core.api.status import ConditionType
from ddpjob_core.api.template import template_errors
from ddpjob_core.children.processes import gpus_of, processes_of, unknown_devices
from ddpjob_core.children.template import resources_of
from ddpjob_core.observations.observed import JobRecord, RejectionKind
from ddpjob_core.observations.situation import Situation
from ddpjob_core.policies.decision import Decision, give_up

_MADE_OF = {"Pod": "spec.template or spec.trainer", "PersistentVolumeClaim": "spec.checkpoint"}
"""Kinds of objects that the API server may refuse for what the spec says, and the fields that say it."""
_TOO_MANY_PROCESSES = (
    f"spec.procsPerNode: auto results in more than {MAX_PROCESSES} processes per node; "
    "check the CPU and GPU requests of spec.trainer.resources, or set a number"
)

_TOO_MANY_RANKS = (
    "spec.nodes x spec.procsPerNode: {} x {} (auto) results in more than "
    f"{MAX_RANKS:,} processes; reduce spec.nodes or the GPU and CPU requests"
)

_NO_GPUS = (
    "spec.backend: nccl needs GPUs of NVIDIA or AMD, but none are requested: "
    "add spec.trainer.resources.limits (nvidia.com/gpu: 1), or use gloo"
)


def invalid_template(situation: Situation) -> Decision | None:
    """A template that the operator cannot use."""
    if situation.job.too_large is not None:
        return give_up(situation, INVALID_SPEC, situation.job.too_large, None)
    errors = template_errors(situation.spec.template)
    if not errors and processes_of(situation.spec) > MAX_PROCESSES:
        # Checked before anything is built: each process gets a port.
        errors = [_TOO_MANY_PROCESSES]
    if not errors and situation.spec.nodes * processes_of(situation.spec) > MAX_RANKS:
        errors = [_TOO_MANY_RANKS.format(situation.spec.nodes, processes_of(situation.spec))]
    if not errors and situation.spec.backend is Backend.NCCL and not _may_have_gpus(situation.spec):
        # Each rank would end with an error of its own, or wait for the others' GPUs until it times out.
        errors = [_NO_GPUS]
    return give_up(situation, INVALID_SPEC, "; ".join(errors), None) if errors else None


def _may_have_gpus(spec: DDPJobSpec) -> bool:
    # GPUs may also be claimed (dynamic resource allocation), provided by the node's runtime, or have another name.
    pod, resources = spec.template.get("spec") or {}, resources_of(spec)
    if gpus_of(resources, cuda=True) or unknown_devices(resources):
        return True
    return bool(pod.get("resourceClaims") or pod.get("runtimeClassName"))


def refused_by_server(situation: Situation) -> Decision | None:
    """A pod or claim that the API server rejects as invalid: its message names the field inside the template."""
    refused = situation.observed.rejections
    invalid = [each for each in refused if each.kind is RejectionKind.INVALID and each.object.kind in _MADE_OF]
    # What was accepted once is not what the spec has wrong: it is created again while the pods run.
    if not invalid or situation.status.pods_created:
        return None
    fields = _MADE_OF[invalid[0].object.kind]
    message = f"the API server refuses {invalid[0].object}: {invalid[0].message}; correct {fields}"
    return give_up(situation, INVALID_SPEC, message, None)


def edited_since_it_failed(job: JobRecord) -> bool:
    """Whether a job failed for its spec, and another spec stands in its place now."""
    failed = job.status.condition(ConditionType.FAILED) if job.status is not None else None
    if failed is None or failed.status != "True" or failed.reason != INVALID_SPEC:
        return False
    return failed.observed_generation is not None and failed.observed_generation < job.generation
