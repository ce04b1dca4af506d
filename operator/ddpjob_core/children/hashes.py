"""Short hashes by which an object tells what it was made of."""

import hashlib
import json
from typing import Final

from ddpjob_core.api.spec import DDPJobSpec

_LENGTH: Final = 10
_NOT_OF_THE_PODS: Final = (
    "suspend",
    "ttl_seconds_after_finished",
    "clean_pod_policy",
    "restart",
    "startup_deadline",
    "progress_deadline",
    "active_deadline_seconds",
)
"""Fields that can change while pods run, since no pod is made of them."""


def content_hash(text: str) -> str:
    """Hash of a text, fit for a name."""
    return hashlib.sha256(text.encode()).hexdigest()[:_LENGTH]


def spec_hash(spec: DDPJobSpec) -> str:
    """Hash of all that the pods are made of.

    Defaults are left out, so that a field which a later version of the operator adds does not make running pods look
    outdated.
    """
    made_of = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=set(_NOT_OF_THE_PODS))
    return content_hash(json.dumps(made_of, sort_keys=True))
