"""Short hashes that identify what an object was made from, and those that nobody else can work out."""

import hashlib
import hmac
import json
from collections.abc import Iterable
from typing import Any, Final

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


def unguessable(name: str, seed: str) -> str:
    """A name that nobody can know, and so nobody can have taken, before its object exists.

    From one such name no other can be worked out: that of the ConfigMap can be read before the Secret exists, and
    that of an attempt before its successor's.

    Args:
        name: what it begins with, which anyone can work out.
        seed: a text that this process alone knows, "" where nobody else makes objects.
    """
    if not seed:
        return name
    return f"{name}-{hmac.new(seed.encode(), name.encode(), hashlib.sha256).hexdigest()[:_LENGTH]}"


def made_from(names: Iterable[str | None], name: str) -> tuple[str, ...]:
    """Those names that `unguessable` may have made from `name` with any seed, each once, in order."""
    return tuple(sorted({each for each in names if each and (each == name or each.startswith(f"{name}-"))}))


def spec_hash(spec: DDPJobSpec) -> str:
    """Hash of everything that affects the pods.

    Defaults are left out, so that a field added by a later version of the operator does not make running pods look
    outdated.
    """
    apart = {*_NOT_OF_THE_PODS, *(("nodes",) if spec.elastic is not None else ())}
    without: dict[str, Any] = {**dict.fromkeys(apart, True), "elastic": {"spare_nodes"}}
    made_of = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=without)
    return content_hash(json.dumps(made_of, sort_keys=True))
