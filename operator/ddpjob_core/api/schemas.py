"""The schemas of the API's types as a CustomResourceDefinition has them, made once: it takes a tenth of a second."""

from functools import cache

from ddpjob_core.api.crd import Schema, structural_schema
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.api.status import DDPJobStatus


@cache
def spec_schema() -> Schema:
    """The schema of a spec."""
    return structural_schema(DDPJobSpec, defaults=False)


@cache
def status_schema() -> Schema:
    """The schema of a status."""
    return structural_schema(DDPJobStatus, defaults=False)
