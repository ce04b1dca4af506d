"""The headless service through which the pods of a job find each other."""

from ddpjob_core.api.constants import LABEL_UID
from ddpjob_core.api.kubernetes import Manifest
from ddpjob_core.api.names import service_name
from ddpjob_core.api.ownership import child_metadata
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.observations.observed import JobRecord


def build_service(job: JobRecord, spec: DDPJobSpec) -> Manifest:
    """The service's manifest.

    Addresses are published before pods are ready, because the rendezvous needs them. On a dual-stack cluster, names
    have addresses of both families, whichever a program asks for.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child_metadata(job, service_name(job.name)),
        "spec": {
            "clusterIP": "None",
            "ipFamilyPolicy": "PreferDualStack",
            "publishNotReadyAddresses": True,
            "selector": {LABEL_UID: job.uid},
            "ports": [{"name": "rendezvous", "port": spec.rendezvous.port, "protocol": "TCP"}],
        },
    }
