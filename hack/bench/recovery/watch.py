"""When the cluster showed what: pods and the job, followed while a fault is done to them."""

import json
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

Json = dict[str, Any]

_FINAL: Final = ("Succeeded", "Failed")


@dataclass(slots=True)
class PodTimes:
    """Moments of one pod, on the host's clock; 0 where it has not come to that."""

    created: float = 0.0
    running: float = 0.0
    gone: float = 0.0
    not_ready: float = 0.0


@dataclass(slots=True)
class Seen:
    """All that a watch has shown so far."""

    pods: dict[str, PodTimes] = field(default_factory=dict)
    attempts: dict[int, float] = field(default_factory=dict)
    """When the job's status first named an attempt."""


class Watch:
    """Follows the pods and the DDPJobs of a namespace through `kubectl get --watch`."""

    def __init__(self, kubectl: Sequence[str], clock: Callable[[], float] = time.time) -> None:
        self.seen = Seen()
        self._clock = clock
        self._processes = [
            subprocess.Popen(
                # The other commands' time limit would end it.
                [*kubectl, "--request-timeout=0", "get", kind, "--watch", "--output-watch-events", "-o", "json"],
                stdout=subprocess.PIPE,
                text=True,
            )
            for kind in ("pods", "ddpjobs")
        ]
        for process in self._processes:
            threading.Thread(target=self._follow, args=(process,), daemon=True).start()

    def close(self) -> None:
        """Stop following."""
        for process in self._processes:
            process.terminate()
            process.wait()

    def _follow(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None  # noqa: S101 it was asked for
        decoder, text = json.JSONDecoder(), ""
        for line in process.stdout:
            text += line
            # One event is a line or many, by the version of kubectl.
            if not line.startswith(("{", "}")):
                continue
            try:
                event, _ = decoder.raw_decode(text.lstrip())
            except ValueError:
                continue
            text = ""
            self.take(event)

    def take(self, event: Json) -> None:
        """Note what an event of the watch shows."""
        now, raw = self._clock(), event["object"]
        status = raw.get("status") or {}
        if raw.get("kind") == "DDPJob":
            self.seen.attempts.setdefault(status.get("attempt", 0), now)
            return
        times = self.seen.pods.setdefault(raw["metadata"]["name"] + "/" + raw["metadata"]["uid"], PodTimes())
        times.created = times.created or now
        ended = status.get("phase") in _FINAL or event["type"] == "DELETED"
        if ended:
            times.gone = times.gone or now
        elif status.get("phase") == "Running":
            times.running = times.running or now
            ready: Json = next((c for c in status.get("conditions") or [] if c["type"] == "Ready"), {})
            if ready.get("status") == "False":
                times.not_ready = times.not_ready or now
