"""The ConfigMap that delivers the launcher to the pods, so that any image with torch works, and its variables."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from ddpjob_core.api.kubernetes import Manifest
from ddpjob_core.api.launchers import Launcher
from ddpjob_core.api.names import launcher_name
from ddpjob_core.api.ownership import child_metadata
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.children.environment import shared_environment
from ddpjob_core.children.hashes import content_hash, unguessable
from ddpjob_core.observations.observed import JobRecord
from ddpjob_launcher.archive import FILE, archive


def build_launcher(job: JobRecord, spec: DDPJobSpec, name: str | None = None) -> Manifest:
    """The ConfigMap's manifest. It is immutable: kubelets do not watch it, and what runs cannot be changed.

    Args:
        job: whose it is.
        spec: the job's spec.
        name: what `launcher_config_name` makes; None for the name where nobody else makes objects.
    """
    variables = shared_environment(job, spec)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child_metadata(job, name or _name(job, spec, variables)),
        "immutable": True,
        "data": variables,
        "binaryData": {FILE: _packed(spec.launcher.traits.module).text},
    }


def launcher_config_name(job: JobRecord, spec: DDPJobSpec, seed: str = "") -> str:
    """The ConfigMap's name, which depends on what it holds, to the byte, and on the seed (`unguessable`).

    Another version of zlib packs the same files into other bytes. Under the same name, the operator would find a
    ConfigMap that is not the one it wants, and use it for nothing.
    """
    return unguessable(_name(job, spec, shared_environment(job, spec)), seed)


def _name(job: JobRecord, spec: DDPJobSpec, variables: Mapping[str, str]) -> str:
    held = [_packed(spec.launcher.traits.module).hash, dict(variables)]
    return launcher_name(job.name, content_hash(json.dumps(held, sort_keys=True)))


def pack_all() -> None:
    """Pack the launcher of every kind once, so that no reconcile has to: it takes more than a tenth of a second."""
    for launcher in Launcher:
        _packed(launcher.traits.module)


@dataclass(frozen=True, slots=True)
class _Packed:
    text: str
    hash: str


@cache
def _packed(module: str) -> _Packed:
    text = base64.b64encode(archive(module)).decode()
    return _Packed(text, content_hash(json.dumps([FILE, text])))
