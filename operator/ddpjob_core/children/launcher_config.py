"""The ConfigMap that delivers the launcher to the pods, so that any image with torch works, and its variables."""

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from ddpjob_core.api.kubernetes import Manifest
from ddpjob_core.api.launchers import Launcher
from ddpjob_core.api.names import launcher_name
from ddpjob_core.api.ownership import child_metadata
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.children.environment import shared_environment
from ddpjob_core.children.hashes import content_hash
from ddpjob_core.observations.observed import JobRecord
from ddpjob_launcher.archive import FILE, archive


def build_launcher(job: JobRecord, spec: DDPJobSpec, suffix: str = "") -> Manifest:
    """The ConfigMap's manifest. It is immutable: kubelets do not watch it, and what runs cannot be changed."""
    variables = shared_environment(job, spec)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child_metadata(job, _name(job, spec, variables, suffix)),
        "immutable": True,
        "data": variables,
        "binaryData": {FILE: _packed(spec.launcher.traits.module).text},
    }


def launcher_config_name(job: JobRecord, spec: DDPJobSpec, suffix: str = "") -> str:
    """The ConfigMap's name, which depends on what it holds, to the byte.

    Another version of zlib packs the same files into other bytes. Under the same name, the operator would find a
    ConfigMap that is not the one it wants, and use it for nothing.
    """
    return _name(job, spec, shared_environment(job, spec), suffix)


def suffixes_of(names: Iterable[str], job: JobRecord, spec: DDPJobSpec) -> tuple[str, ...]:
    """The suffixes of those names that are of a ConfigMap with what this job's would hold now, in order."""
    plain = launcher_config_name(job, spec)
    ours = {name for name in names if name == plain or name.startswith(f"{plain}-")}
    return tuple(name.removeprefix(plain).removeprefix("-") for name in sorted(ours))


def _name(job: JobRecord, spec: DDPJobSpec, variables: Mapping[str, str], suffix: str) -> str:
    held = [_packed(spec.launcher.traits.module).hash, dict(variables)]
    return launcher_name(job.name, content_hash(json.dumps(held, sort_keys=True)), suffix)


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
