"""What a registry says of an image, by the OCI distribution specification, without an account.

https://github.com/opencontainers/distribution-spec; the token is asked for as Docker's registries describe it:
https://distribution.github.io/distribution/spec/auth/token/
"""

import hashlib
import http.client
import ipaddress
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import IO, Final

from hack.console import StepError

_DOCKER_HUB: Final = "docker.io"
# Where Docker's own registry answers; its name in the names of images does not.
_HOSTS: Final = {_DOCKER_HUB: "registry-1.docker.io"}
# An index first: its digest is the same for every architecture.
_TYPES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_MOST_BYTES: Final = 4 << 20
"""What the specification has registries take for a manifest at least."""
_SECONDS: Final = 30.0
_SCHEMA: Final = 2
_PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAME: Final = re.compile(
    rf"(?P<host>[A-Za-z0-9.-]+(?::[0-9]+)?)/(?P<path>{_PART}(?:/{_PART})*):(?P<tag>\w[\w.-]{{0,127}})"
)
_CHALLENGE: Final = re.compile(r"""([a-z]+)="([^"]*)\"""", re.IGNORECASE)


@dataclass(frozen=True)
class Reference:
    """An image in a registry.

    Attributes:
        host: of the registry, with a port where it is not the usual one.
        repository: path of the image there.
        tag: the one that is looked up.
    """

    host: str
    repository: str
    tag: str

    @property
    def address(self) -> str:
        """Where the registry answers; without TLS on this machine alone, as container engines have it."""
        host = _HOSTS.get(self.host, self.host)
        return f"{'http' if self.is_local else 'https'}://{host}"

    @property
    def is_local(self) -> bool:
        """Whether the registry is on this machine."""
        host = self.host.partition(":")[0]
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"


def reference(name: str) -> Reference:
    """The parts of a name.

    Args:
        name: as Dockerfiles here write it, with registry and tag: docker.io/library/debian:trixie-slim.

    Raises:
        StepError: it is not such a name.
    """
    match = _NAME.fullmatch(name)
    if match is None or not ("." in match["host"] or ":" in match["host"] or match["host"] == "localhost"):
        raise StepError(
            f"base image {name!r}: it must be written with registry and tag, as registry.example/team/name:tag"
        )
    return Reference(match["host"], match["path"], match["tag"])


def digest_of(image: Reference, seconds: float = _SECONDS) -> str:
    """The digest of the index or manifest to which a tag points now.

    Args:
        image: the image.
        seconds: after which each request is given up.

    Raises:
        StepError: the registry cannot be reached, does not have it, wants a login, or answers nonsense.
    """
    asked = _Registry(image, seconds)
    address = f"{image.address}/v2/{image.repository}/manifests/{image.tag}"
    accept = {"Accept": ", ".join(_TYPES)}
    answer = asked.get(address, accept)
    if answer.status == HTTPStatus.UNAUTHORIZED:
        token = _token(asked, image, answer.headers.get("www-authenticate", ""))
        answer = asked.get(address, accept, token)
    if answer.status != HTTPStatus.OK:
        raise StepError(asked.refused(answer.status))
    content_type = answer.headers.get("content-type", "").partition(";")[0].strip()
    if content_type not in _TYPES:
        raise StepError(f"{asked.what}: the answer is {content_type or 'of no type'}, not an image's index or manifest")
    if not _is_manifest(answer.body):
        raise StepError(f"{asked.what}: the answer is not an image's index or manifest, or not all of one")
    digest = f"sha256:{hashlib.sha256(answer.body).hexdigest()}"
    said = answer.headers.get("docker-content-digest", digest)
    if said != digest:
        raise StepError(f"{asked.what}: the registry says {said}, and what it sent is {digest}")
    return digest


def _is_manifest(body: bytes) -> bool:
    """Whether it is an index or a manifest, to its end: not every server says how long its answer is."""
    try:
        content = json.loads(body)
    except ValueError:
        return False
    return isinstance(content, dict) and content.get("schemaVersion") == _SCHEMA


@dataclass(frozen=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


class _OnlyWithTls(urllib.request.HTTPRedirectHandler):
    """Follows no redirect to where anyone on the way could change the answer."""

    def redirect_request(  # noqa: PLR0917 - the parameters of the base class
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """The next request.

        Raises:
            URLError: it would be without TLS.
        """
        if urllib.parse.urlsplit(newurl).scheme != "https":
            raise urllib.error.URLError(f"it redirects to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Registry:
    """Requests to a registry, and to what it names for tokens."""

    def __init__(self, image: Reference, seconds: float) -> None:
        self.what = f"{image.host}/{image.repository}:{image.tag}"
        self._seconds = seconds
        own = [urllib.request.ProxyHandler({})] if image.is_local else [_OnlyWithTls()]
        self._opener = urllib.request.build_opener(*own)

    def get(self, address: str, headers: Mapping[str, str], token: str = "") -> _Answer:
        request = urllib.request.Request(address, headers=dict(headers))  # noqa: S310 - https, or this machine
        if token:
            # Not for the host that a registry may send us on to.
            request.add_unredirected_header("Authorization", f"Bearer {token}")
        try:
            status, answer = self._opened(request)
            with answer:
                return self._read(status, answer)
        except (OSError, http.client.HTTPException) as error:
            host = urllib.parse.urlsplit(address).netloc
            reason = getattr(error, "reason", None) or error
            raise StepError(f"{self.what}: {host} cannot be reached: {reason}") from error

    def _opened(self, request: urllib.request.Request) -> tuple[int, http.client.HTTPResponse | urllib.error.HTTPError]:
        """The status and the answer, be it a refusal or not."""
        try:
            answer: http.client.HTTPResponse = self._opener.open(request, timeout=self._seconds)
        except urllib.error.HTTPError as error:
            return error.code, error
        return answer.status, answer

    def _read(self, status: int, answer: http.client.HTTPResponse | urllib.error.HTTPError) -> _Answer:
        headers = {name.lower(): value for name, value in answer.headers.items()}
        body = answer.read(_MOST_BYTES + 1)
        if len(body) > _MOST_BYTES:
            raise StepError(f"{self.what}: the answer has more than {_MOST_BYTES} bytes, which no manifest has")
        if headers.get("content-length", str(len(body))) != str(len(body)):
            # With a limit of its own, read does not say so.
            raise StepError(f"{self.what}: the answer broke off after {len(body)} bytes")
        return _Answer(status, headers, body)

    def refused(self, status: int) -> str:
        """The sentence for a status that is not 200."""
        login = "the registry has no such image, or wants a login; only public images can be looked up"
        reasons: dict[int, str] = {
            HTTPStatus.NOT_FOUND: "the registry has no such image or tag",
            HTTPStatus.UNAUTHORIZED: login,
            HTTPStatus.FORBIDDEN: login,
            HTTPStatus.TOO_MANY_REQUESTS: "the registry has had too many requests from this address; try again later",
        }
        return f"{self.what}: {reasons.get(status, f'the registry answers {status}')}"


def _token(registry: _Registry, image: Reference, challenge: str) -> str:
    """A token for reading, from where the registry sends us for it."""
    kind, _, rest = challenge.partition(" ")
    given = {name.lower(): value for name, value in _CHALLENGE.findall(rest)}
    realm = urllib.parse.urlsplit(given.get("realm", ""))
    if kind.lower() != "bearer" or not realm.netloc:
        raise StepError(registry.refused(HTTPStatus.UNAUTHORIZED))
    if realm.scheme != "https" and not image.is_local:
        raise StepError(f"{registry.what}: the registry names {given['realm']} for tokens, which is not https")
    asked = {"scope": given.get("scope") or f"repository:{image.repository}:pull"}
    if "service" in given:
        asked["service"] = given["service"]
    query = "&".join(filter(None, (realm.query, urllib.parse.urlencode(asked))))
    answer = registry.get(realm._replace(query=query, fragment="").geturl(), {})
    if answer.status != HTTPStatus.OK:
        raise StepError(registry.refused(answer.status))
    try:
        content = json.loads(answer.body)
        token = content.get("token") or content.get("access_token")
    except (ValueError, AttributeError):
        token = None
    if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]+", token):
        raise StepError(f"{registry.what}: {realm.netloc} answers without a token")
    return token
