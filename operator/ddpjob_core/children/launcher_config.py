"""The ConfigMap that brings the launcher into the pods, so that any image with torch will do."""

import json
from functools import cache

from ddpjob_core.api.kubernetes import Manifest
from ddpjob_core.api.names import launcher_name
from ddpjob_core.api.ownership import child_metadata
from ddpjob_core.children.hashes import content_hash
from ddpjob_core.observations.observed import JobRecord
from ddpjob_launcher import sources


def build_launcher(job: JobRecord) -> Manifest:
    """The ConfigMap's manifest. It is immutable: no kubelet has to watch it, nobody can change what runs."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child_metadata(job, launcher_config_name(job.name)),
        "immutable": True,
        "data": sources(),
    }


def launcher_config_name(job: str) -> str:
    """The ConfigMap's name."""
    return launcher_name(job, _source_hash())


@cache
def _source_hash() -> str:
    return content_hash(json.dumps(sources(), sort_keys=True))
