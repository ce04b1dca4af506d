"""The ConfigMap that brings the launcher into the pods, so that any image with torch will do."""

from functools import cache
from typing import Final

from ddpjob.children.hashes import content_hash
from ddpjob.children.metadata import child_metadata
from ddpjob.children.names import launcher_name
from ddpjob.launcher import source
from ddpjob.observed import JobRecord
from ddpjob.plan import Manifest

FILE: Final = "launcher.py"


def build_launcher(job: JobRecord) -> Manifest:
    """The ConfigMap's manifest. It is immutable: no kubelet has to watch it, nobody can change what runs."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child_metadata(job, launcher_config_name(job.name)),
        "immutable": True,
        "data": {FILE: source()},
    }


def launcher_config_name(job: str) -> str:
    """The ConfigMap's name."""
    return launcher_name(job, _source_hash())


@cache
def _source_hash() -> str:
    return content_hash(source())
