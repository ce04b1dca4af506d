"""Short hashes that identify what an object was made from."""

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
    "slow_rank",
    "active_deadline_seconds",
)
"""Fields that can change while pods run, because they do not affect pods."""


def content_hash(text: str) -> str:
    """Hash of a text, valid as part of a name."""
    return hashlib.sha256(text.encode()).hexdigest()[:_LENGTH]


def spec_hash(spec: DDPJobSpec) -> str:
    """Hash of everything that affects the pods.

    Defaults are left out, so that a field added by a later version of the operator does not make running pods look
    outdated.
    """
    apart = {*_NOT_OF_THE_PODS, *(("nodes",) if spec.elastic is not None else ())}
    made_of = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=apart)
    return content_hash(json.dumps(made_of, sort_keys=True))
