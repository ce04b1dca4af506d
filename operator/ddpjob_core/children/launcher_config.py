"""The ConfigMap that delivers the launcher to the pods, so that any image with torch works, and its variables."""

import base64
import json
from collections.abc import Mapping
from functools import cache

from ddpjob_core.api.kubernetes import Manifest
from ddpjob_core.api.launchers import Launcher
from ddpjob_core.api.names import launcher_name
from ddpjob_core.api.ownership import child_metadata
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.children.environment import shared_environment
from ddpjob_core.children.hashes import content_hash
from ddpjob_core.observations.observed import JobRecord
from ddpjob_launcher.archive import FILE, archive, sources


def build_launcher(job: JobRecord, spec: DDPJobSpec) -> Manifest:
    """The ConfigMap's manifest. It is immutable: kubelets do not watch it, and what runs cannot be changed."""
    variables = shared_environment(job, spec)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child_metadata(job, _name(job, spec, variables)),
        "immutable": True,
        "data": variables,
        "binaryData": {FILE: _packed(spec.launcher.traits.module)},
    }


def launcher_config_name(job: JobRecord, spec: DDPJobSpec) -> str:
    """The ConfigMap's name, which depends on what it holds.

    Of the archive that is its files: its bytes depend on the version of zlib.
    """
    return _name(job, spec, shared_environment(job, spec))


def _name(job: JobRecord, spec: DDPJobSpec, variables: Mapping[str, str]) -> str:
    held = [_source_hash(spec.launcher.traits.module), dict(variables)]
    return launcher_name(job.name, content_hash(json.dumps(held, sort_keys=True)))


def pack_all() -> None:
    """Pack the launcher of every kind once, so that no reconcile has to: it takes more than a tenth of a second."""
    for launcher in Launcher:
        _packed(launcher.traits.module)
        _source_hash(launcher.traits.module)


@cache
def _packed(module: str) -> str:
    return base64.b64encode(archive(module)).decode()


@cache
def _source_hash(module: str) -> str:
    return content_hash(json.dumps([FILE, dict(sources(module))], sort_keys=True))
