"""status.procsPerNode and status.backend: what `auto` comes to."""

from ddpjob_core.api.constants import MAX_PROCESSES
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.api.template import template_errors
from ddpjob_core.children.pod import resources_of
from ddpjob_core.children.processes import resolve_backend, resolve_procs_per_node


def resolved_fields(spec: DDPJobSpec) -> dict[str, object]:
    """The fields of the status; none for a template with errors, which cannot be merged."""
    if template_errors(spec.template):
        return {}
    resources = resources_of(spec)
    return {
        "procs_per_node": min(resolve_procs_per_node(spec.procs_per_node, resources), MAX_PROCESSES),
        "backend": resolve_backend(spec.backend, resources).value,
    }
