"""The few requests that a user's tools make. Objects are raw JSON; a request that fails raises an `ApiError`."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import urllib3

from ddpjob.cluster.transport import Json, Transport
from ddpjob.views.remedies import with_remedy
from ddpjob_core.api.answers import error_of_status
from ddpjob_core.api.bounded_json import decode
from ddpjob_core.api.constants import TRAINER_CONTAINER
from ddpjob_core.api.errors import Unavailable
from ddpjob_core.api.resources import PODS, Resource

_PAGE: Final = "500"
WATCH_SECONDS: Final = 60.0
_WATCH_MARGIN: Final = 15.0
ACCESS_REVIEWS: Final = Resource("/apis/authorization.k8s.io/v1", "selfsubjectaccessreviews")


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """ADDED, MODIFIED or DELETED, with the object."""

    type: str
    object: Json


class Cluster:
    """A cluster as one user sees it."""

    def __init__(self, transport: Transport, *, namespace: str, context: str) -> None:
        """Args:
        transport: carries the requests.
        namespace: the default namespace.
        context: name of the kubeconfig's context.
        """
        self._transport = transport
        self.namespace = namespace
        self.context = context

    @property
    def server(self) -> str:
        """The API server's URL."""
        return self._transport.server

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()

    def get(self, resource: Resource, namespace: str | None, name: str) -> Json:
        """One object."""
        return self._transport.send("GET", resource.path(namespace, name))

    def find(self, resource: Resource, namespace: str | None, *, labels: str = "", fields: str = "") -> list[Json]:
        """All objects of a namespace, or of all namespaces if it is None.

        Args:
            resource: kind of object.
            namespace: where.
            labels: label selector.
            fields: field selector.
        """
        query = {"limit": _PAGE, **_selectors(labels, fields)}
        found: list[Json] = []
        while True:
            answer = self._transport.send("GET", resource.path(namespace), query)
            found += answer.get("items") or []
            token = (answer.get("metadata") or {}).get("continue")
            if not token:
                return found
            query["continue"] = token

    def create(self, resource: Resource, manifest: Json, *, dry_run: bool = False) -> Json:
        """Create an object; unknown and duplicate fields are refused.

        Args:
            resource: kind of object.
            manifest: the object, with its namespace.
            dry_run: only have it validated.
        """
        query = {"fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
        return self._transport.send("POST", resource.path(manifest["metadata"].get("namespace")), query, manifest)

    def patch(self, resource: Resource, namespace: str, name: str, change: Json) -> Json:
        """Merge a change into an object (RFC 7386)."""
        return self._transport.send("PATCH", resource.path(namespace, name), None, change)

    def delete(self, resource: Resource, namespace: str, name: str, *, uid: str) -> None:
        """Delete the object with this uid, and what it owns in the background."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": uid},
        }
        self._transport.send("DELETE", resource.path(namespace, name), None, options)

    def watch(
        self, resource: Resource, namespace: str, *, fields: str, since: str, seconds: float = WATCH_SECONDS
    ) -> Iterator[WatchEvent]:
        """Changes of objects since a resource version.

        Args:
            resource: kind of object.
            namespace: where.
            fields: field selector.
            since: resource version.
            seconds: when it ends, rounded up to whole seconds.

        Raises:
            Expired: the resource version is too old.
            Unavailable: the stream was interrupted.
        """
        query = {
            "watch": "true",
            "resourceVersion": since,
            "timeoutSeconds": str(max(1, math.ceil(seconds))),
            **_selectors("", fields),
        }
        with self._transport.open("GET", resource.path(namespace), query, silence=seconds + _WATCH_MARGIN) as stream:
            for line in _lines(stream):
                raw = decode(line)
                if raw["type"] == "ERROR":
                    code = raw["object"].get("code", HTTPStatus.INTERNAL_SERVER_ERROR)
                    raise with_remedy(error_of_status(int(code), raw["object"]))
                yield WatchEvent(raw["type"], raw["object"])

    def log(
        self, namespace: str, pod: str, *, follow: bool = False, tail: int | None = None, since: str | None = None
    ) -> Iterator[str]:
        """Lines of the log of a pod's trainer, each prefixed with its time and a space; none if the pod has no node.

        Args:
            namespace: of the pod.
            pod: its name.
            follow: continue until the container ends.
            tail: only this many lines from the end.
            since: only from the second of this time on.
        """
        query = {"container": TRAINER_CONTAINER, "timestamps": "true"}
        if follow:
            query["follow"] = "true"
        if tail is not None:
            query["tailLines"] = str(tail)
        if since is not None:
            query["sinceTime"] = since
        # A training may print nothing for hours.
        with self._transport.open("GET", PODS.path(namespace, pod, "log"), query, silence=None) as stream:
            for line in _lines(stream):
                yield line.decode(errors="replace")

    def json(self, path: str) -> Json:
        """The answer to a GET of any path."""
        return self._transport.send("GET", path)

    def text(self, path: str) -> str:
        """The answer to a GET of any path as text."""
        return self._transport.text(path)

    def may(
        self, verb: str, resource: Resource, namespace: str | None, *, subresource: str = "", name: str = ""
    ) -> bool:
        """Whether the user may do this, as in `kubectl auth can-i`: to all objects, or to the one of that name."""
        attributes = {"verb": verb, "group": resource.group, "resource": resource.plural}
        if subresource:
            attributes["subresource"] = subresource
        if name:
            attributes["name"] = name
        if namespace:
            attributes["namespace"] = namespace
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "metadata": {},
            "spec": {"resourceAttributes": attributes},
        }
        return (self.create(ACCESS_REVIEWS, review).get("status") or {}).get("allowed") is True


def _selectors(labels: str, fields: str) -> Mapping[str, str]:
    return {**({"labelSelector": labels} if labels else {}), **({"fieldSelector": fields} if fields else {})}


def _lines(stream: urllib3.HTTPResponse) -> Iterator[bytes]:
    rest = b""
    try:
        # read1 returns what has arrived; the other readers wait for a whole chunk.
        while chunk := stream.read1():
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unavailable(f"the stream was interrupted: {error}", "try again") from error
    if rest:
        yield rest
