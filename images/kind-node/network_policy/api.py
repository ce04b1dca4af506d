"""Lists and watches of the API server, with the kubelet's own identity."""

import json
import re
import ssl
from collections.abc import Callable
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from network_policy.objects import Json

KUBECONFIG: Final = Path("/etc/kubernetes/kubelet.conf")
CERTIFICATE: Final = Path("/var/lib/kubelet/pki/kubelet-client-current.pem")
AUTHORITY: Final = Path("/etc/kubernetes/pki/ca.crt")
_WATCH_SECONDS: Final = 240
_SILENCE_SECONDS: Final = 300.0


def follow(path: str, show: Callable[[dict[str, Json]], None]) -> None:
    """Show all objects of a resource, by uid, whenever one has changed, until the watch ends.

    Args:
        path: of the resource.
        show: called with all of them.

    Raises:
        OSError: the API server cannot be reached, or the node has not joined the cluster yet.
        HTTPException: it refuses, or breaks off.
    """
    with _get(path) as answer:
        listed = json.load(answer)
    objects = {each["metadata"]["uid"]: each for each in listed["items"]}
    show(objects)
    since = listed["metadata"]["resourceVersion"]
    with _get(f"{path}?watch=true&timeoutSeconds={_WATCH_SECONDS}&resourceVersion={since}") as stream:
        while line := stream.readline():
            event = json.loads(line)
            if event["type"] == "ERROR":
                raise HTTPException(f"the watch of {path} ended: {event['object'].get('message')}")
            uid = event["object"]["metadata"]["uid"]
            if event["type"] == "DELETED":
                objects.pop(uid, None)
            else:
                objects[uid] = event["object"]
            show(objects)


def _get(path: str) -> HTTPResponse:
    # Read for each connection: the kubelet replaces its certificate.
    server = re.search(r"^\s*server: (\S+)$", KUBECONFIG.read_text(encoding="utf-8"), re.MULTILINE)
    if server is None:
        raise OSError(f"{KUBECONFIG} names no server")
    context = ssl.create_default_context(cafile=AUTHORITY)
    context.load_cert_chain(CERTIFICATE)
    address = urlsplit(server[1])
    connection = HTTPSConnection(address.hostname or "", address.port, timeout=_SILENCE_SECONDS, context=context)
    connection.request("GET", path, headers={"Accept": "application/json"})
    answer = connection.getresponse()
    if answer.status != HTTPStatus.OK:
        raise HTTPException(f"GET {path}: {answer.status} {answer.read(500).decode(errors='replace')}")
    return answer
