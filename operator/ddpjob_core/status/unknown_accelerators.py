"""What is said of a job that requests devices which look like accelerators, but are not known."""

from typing import Final

from ddpjob_core.api.spec import Backend, DDPJobSpec
from ddpjob_core.children.processes import gpus_of, resolve_backend, resolve_procs_per_node, unknown_devices
from ddpjob_core.children.template import resources_of
from ddpjob_core.observations.listing import first_few

_NAMED: Final = 3


def unknown_accelerator_remark(spec: DDPJobSpec) -> str:
    """What `auto` comes to without knowing them; "" if there are none, or nothing depends on them."""
    resources = resources_of(spec)
    unknown = unknown_devices(resources)
    fields = {
        "procsPerNode": (spec.procs_per_node, resolve_procs_per_node(spec.procs_per_node, resources)),
        "backend": (spec.backend.value, resolve_backend(spec.backend, resources).value),
    }
    resolved = {name: value for name, (asked, value) in fields.items() if asked == Backend.AUTO.value}
    taken = gpus_of(resources) > 0
    known = [name for name in unknown if name.endswith("/gpu")]
    # Next to GPUs that are known, what else is requested may well be a property of these.
    if not unknown or not resolved or (taken and not known):
        return ""
    names = ", ".join(first_few(known if taken else unknown, _NAMED))
    what = f"taken for GPUs: {names}" if taken else f"does not count: {names}"
    came_to = ", ".join(f"spec.{name} is {value}" for name, value in resolved.items())
    return f"an accelerator that is not known {what}; {came_to} (auto): set it if that is wrong"
