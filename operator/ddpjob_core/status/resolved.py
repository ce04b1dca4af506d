"""status.procsPerNode and status.backend: what `auto` comes to."""

from ddpjob_core.api.constants import MAX_PROCESSES
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.api.status import ConditionType, DDPJobStatus
from ddpjob_core.api.template import template_errors
from ddpjob_core.children.processes import resolve_backend, resolve_procs_per_node
from ddpjob_core.children.template import resources_of


def resolved_fields(spec: DDPJobSpec, decided: DDPJobStatus) -> dict[str, object]:
    """The fields of the status that change; none for a template with errors, which cannot be merged.

    Nor do they change while pods run, since an earlier version of the operator may have created these with others.
    """
    in_use = decided.pods_created and decided.procs_per_node is not None
    if (in_use and not decided.holds(ConditionType.SUSPENDED)) or template_errors(spec.template):
        return {}
    resources = resources_of(spec)
    return {
        "procs_per_node": min(resolve_procs_per_node(spec.procs_per_node, resources), MAX_PROCESSES),
        "backend": resolve_backend(spec.backend, resources).value,
    }
