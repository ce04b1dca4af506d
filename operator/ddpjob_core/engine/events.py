"""Kubernetes Events on a DDPJob, for `kubectl describe` and for those who watch them."""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Final

from ddpjob_core.api.base import format_time
from ddpjob_core.api.constants import API_VERSION, KIND
from ddpjob_core.api.errors import ApiError
from ddpjob_core.api.resources import EVENTS
from ddpjob_core.engine.protocols import Json, ObjectApi
from ddpjob_core.observations.observed import JobRecord
from ddpjob_core.status.events import Event

COMPONENT: Final = "ddpjob-operator"
_LONGEST_MESSAGE: Final = 1024

_log = logging.getLogger(__name__)


class EventPoster:
    """Posts each event once. One that cannot be posted is logged and dropped: it must not delay the job."""

    def __init__(self, kube: ObjectApi, *, now: Callable[[], datetime], instance: str) -> None:
        """Args:
        kube: the API server.
        now: this process' clock.
        instance: who posts, such as the operator's pod.
        """
        self._kube = kube
        self._now = now
        self._instance = instance

    async def post(self, job: JobRecord, event: Event) -> None:
        """Post an event on the job. It never raises."""
        try:
            await self._kube.create(EVENTS, self._manifest(job, event))
        except ApiError as failure:
            _log.warning("event %s on %s/%s was dropped: %s", event.reason, job.namespace, job.name, failure)

    def _manifest(self, job: JobRecord, event: Event) -> Json:
        now = format_time(self._now())
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": job.namespace, "generateName": f"{job.name}."},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "namespace": job.namespace,
                "name": job.name,
                "uid": job.uid,
                "resourceVersion": job.resource_version,
            },
            "type": event.type,
            "reason": event.reason,
            "message": event.message[:_LONGEST_MESSAGE],
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._instance,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
