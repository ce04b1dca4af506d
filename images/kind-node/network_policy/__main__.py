"""Keeps the rules of this node's kernel as the policies of the cluster want them: python3 -m network_policy."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from http.client import HTTPException
from typing import Final

from network_policy.api import follow
from network_policy.objects import Json, Pod, pod_of, policy_of
from network_policy.ruleset import TABLE, Cluster, ruleset

_PATHS: Final = {
    "pods": "/api/v1/pods",
    "namespaces": "/api/v1/namespaces",
    "policies": "/apis/networking.k8s.io/v1/networkpolicies",
}
_RETRY_SECONDS: Final = 1.0
_GATHER_SECONDS: Final = 0.02
"""What comes together is applied together."""


class View:
    """What the watches show, from their threads to the one that applies it."""

    def __init__(self) -> None:
        """Nothing has been shown."""
        self._shown: dict[str, list[Json]] = {}
        self._lock = threading.Lock()
        self.changed = threading.Event()

    def take(self, resource: str, objects: dict[str, Json]) -> None:
        """All objects of a resource, as they are now."""
        with self._lock:
            self._shown[resource] = list(objects.values())
        self.changed.set()

    def cluster(self) -> Cluster | None:
        """All of it, None until each watch has listed its objects."""
        with self._lock:
            if len(self._shown) < len(_PATHS):
                return None
            shown = dict(self._shown)
        pods: list[Pod] = [pod for raw in shown["pods"] if (pod := pod_of(raw)) is not None]
        names = {raw["metadata"]["name"]: raw["metadata"].get("labels") or {} for raw in shown["namespaces"]}
        return Cluster(pods, names, [policy_of(raw) for raw in shown["policies"]])


def main() -> None:
    """Watch and apply for ever. What is in the kernel stays there while this program is not running."""
    node, view, applied = socket.gethostname(), View(), ""
    if _nft("list", "table", "inet", TABLE) is not None:
        # The first since the node has started: its pods wait until their policies are known.
        applied = _apply(ruleset(node, Cluster()).text, applied)
    threading.excepthook = _end
    for resource, path in _PATHS.items():
        threading.Thread(target=_keep_following, args=(path, resource, view.take), daemon=True).start()
    known: tuple[str, ...] = ()
    while True:
        view.changed.wait()
        time.sleep(_GATHER_SECONDS)
        view.changed.clear()
        cluster = view.cluster()
        if cluster is None:
            continue
        rules = ruleset(node, cluster)
        for problem in sorted(set(rules.problems) - set(known)):
            _say(problem)
        known = rules.problems
        if rules.text != applied:
            applied = _apply(rules.text, applied)
            if applied != rules.text:
                time.sleep(_RETRY_SECONDS)
                view.changed.set()


def _apply(text: str, before: str) -> str:
    """What is in the kernel then: all of the text, or what was there before."""
    failure = _nft("-f", "-", stdin=text)
    if failure is None:
        return text
    _say(f"nft refuses the rules, so that those from before stay: {failure}\n{text}")
    return before


def _nft(*arguments: str, stdin: str = "") -> str | None:
    done = subprocess.run(["nft", *arguments], input=stdin, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stderr.strip()


def _keep_following(path: str, resource: str, take: Callable[[str, dict[str, Json]], None]) -> None:
    said = ""
    while True:
        try:
            follow(path, lambda objects: take(resource, objects))
        except (OSError, HTTPException, json.JSONDecodeError) as error:
            if str(error) != said:
                said = str(error)
                _say(f"{resource} cannot be followed, trying again: {said}")
            time.sleep(_RETRY_SECONDS)


def _end(failed: threading.ExceptHookArgs) -> None:
    """End the program, which the node starts again: without one of its watches it would apply what was true once."""
    traceback.print_exception(failed.exc_type, failed.exc_value, failed.exc_traceback)
    os._exit(1)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
