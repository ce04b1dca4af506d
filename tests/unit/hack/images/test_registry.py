"""Digests of tags, asked of a registry that really answers."""

import hashlib
import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hack.cache import ROOT
from hack.console import StepError
from hack.images.bases import Lock, base_names, read_lock, written
from hack.images.pin import renewed
from hack.images.registry import Reference, digest_of, reference
from tests.apiserver.chart.registry import Registry, serving

INDEX = "application/vnd.oci.image.index.v1+json"
CONTENT = b'{"schemaVersion": 2, "manifests": []}'
OTHER = b'{"schemaVersion": 2, "manifests": [], "annotations": {}}'
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


def image_in(registry: Registry) -> Reference:
    registry.put_manifest("library/debian", "trixie-slim", INDEX, CONTENT)
    return reference(f"{registry.host}/library/debian:trixie-slim")


def test_the_digest_of_a_tag_is_that_of_what_the_registry_sends() -> None:
    with serving() as registry:
        assert digest_of(image_in(registry)) == DIGEST
        newer = registry.put_manifest("library/debian", "trixie-slim", INDEX, OTHER)
        assert digest_of(reference(f"{registry.host}/library/debian:trixie-slim")) == newer != DIGEST


def test_a_registry_that_wants_a_token_gets_the_one_that_it_gives_to_everybody() -> None:
    with serving("a-token") as registry:
        assert digest_of(image_in(registry)) == DIGEST
        assert registry.asked == [{"scope": ["repository:library/debian:pull"], "service": ["registry.example"]}]


def test_a_tag_that_is_not_there_is_named() -> None:
    with serving() as registry, pytest.raises(StepError, match=r"library/debian:sid: the registry has no such image"):
        digest_of(reference(f"{registry.host}/library/debian:sid"))


def test_a_page_in_place_of_an_image_has_no_digest() -> None:
    with serving() as registry:
        registry.put_manifest("library/debian", "trixie-slim", "text/html; charset=utf-8", b"<html>")
        with pytest.raises(StepError, match="the answer is text/html, not an image's index or manifest"):
            digest_of(reference(f"{registry.host}/library/debian:trixie-slim"))


@contextmanager
def answering(status: int, headers: dict[str, str], body: bytes = b"") -> Iterator[Reference]:
    """A registry that says the same to every question."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 its name in the base class
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield reference(f"127.0.0.1:{server.server_port}/team/base:1")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "headers", "body", "message"),
    [
        (200, {"Content-Type": INDEX, "Docker-Content-Digest": DIGEST}, OTHER, "the registry says sha256:"),
        (200, {"Content-Type": INDEX}, CONTENT[:-1], "not all of one"),
        (200, {"Content-Type": INDEX}, b"[]", "not an image's index"),
        (200, {"Content-Type": INDEX}, b'{"schemaVersion": 1}', "not an image's index"),
        (200, {"Content-Type": INDEX, "Content-Length": "500"}, CONTENT, "broke off after"),
        (500, {"Content-Length": "500"}, b"half", "broke off after 4 bytes"),
        (200, {"Content-Type": INDEX}, b" " * (5 << 20), "which no manifest has"),
        (401, {}, b"", "wants a login"),
        (401, {"WWW-Authenticate": 'Basic realm="team"'}, b"", "wants a login"),
        (401, {"WWW-Authenticate": "Bearer"}, b"", "wants a login"),
        (403, {}, b"", "wants a login"),
        (429, {}, b"", "too many requests"),
        (500, {}, b"", "the registry answers 500"),
        (599, {}, b"", "the registry answers 599"),
    ],
)
def test_every_refusal_is_a_sentence_that_names_the_image(
    status: int, headers: dict[str, str], body: bytes, message: str
) -> None:
    with answering(status, headers, body) as image, pytest.raises(StepError, match=message) as caught:
        digest_of(image)
    assert str(caught.value).startswith(f"{image.host}/team/base:1: ")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"token": 1}', b'{"token": "two\\r\\nlines"}'])
def test_an_answer_without_a_token_is_not_taken_for_one(body: bytes) -> None:
    with answering(200, {}, body) as tokens:
        challenge = f'Bearer realm="http://{tokens.host}/token"'
        with (
            answering(401, {"WWW-Authenticate": challenge}) as image,
            pytest.raises(StepError, match="answers without a token"),
        ):
            digest_of(image)


def test_a_registry_that_does_not_answer_is_named_with_the_reason() -> None:
    with serving() as registry:
        gone = image_in(registry)
    with pytest.raises(StepError, match=rf"{gone.host} cannot be reached: .*refused"):
        digest_of(gone)


@pytest.mark.parametrize(
    ("name", "wanted", "address"),
    [
        (
            "docker.io/library/debian:trixie-slim",
            Reference("docker.io", "library/debian", "trixie-slim"),
            "https://registry-1.docker.io",
        ),
        (
            "registry.example:5000/a/b:1",
            Reference("registry.example:5000", "a/b", "1"),
            "https://registry.example:5000",
        ),
        ("localhost/base:1", Reference("localhost", "base", "1"), "http://localhost"),
        ("127.0.0.2:80/base:1", Reference("127.0.0.2:80", "base", "1"), "http://127.0.0.2:80"),
    ],
)
def test_a_name_says_where_to_ask_and_without_tls_on_this_machine_alone(
    name: str, wanted: Reference, address: str
) -> None:
    assert reference(name) == wanted
    assert wanted.address == address


@pytest.mark.parametrize(
    "name",
    ["debian:trixie", "library/debian:trixie", "docker.io/library/debian", "docker.io/Debian:1", "docker.io/a?b:1", ""],
)
def test_a_name_without_registry_or_tag_is_refused(name: str) -> None:
    with pytest.raises(StepError, match="must be written with registry and tag"):
        reference(name)


def pin(lock: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hack.images.pin", "--lock", str(lock), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_command_writes_the_digests_of_now_and_keeps_the_rest_of_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "bases.lock.yaml"
    with serving("a-token") as registry:
        name = f"{image_in(registry).host}/library/debian:trixie-slim"
        done = pin(path, name, "--snapshot", "20261101T000000Z")
        assert done.returncode == 0, done.stderr
        assert f"{name}  {DIGEST}\n" in done.stdout
        assert read_lock(path) == Lock({name: DIGEST}, "20261101T000000Z")
        other = registry.put_manifest("team/other", "1", INDEX, OTHER)
        assert pin(path, f"{registry.host}/team/other:1").returncode == 0
        both = Lock({name: DIGEST, f"{registry.host}/team/other:1": other}, "20261101T000000Z")
        assert read_lock(path) == both
        assert pin(path, name, "--snapshot", "").returncode == 0
        assert read_lock(path).snapshot == ""


def test_a_lock_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "bases.lock.yaml"
    with serving() as registry:
        name = f"{image_in(registry).host}/library/debian:trixie-slim"
        for arguments, message in (
            ((name, f"{registry.host}/gone:1"), "gone:1: the registry has no such image or tag"),
            ((name, "--snapshot", "yesterday"), "--snapshot is 'yesterday'"),
        ):
            before = written(Lock({"docker.io/library/debian:trixie-slim": DIGEST}))
            path.write_text(before)
            done = pin(path, *arguments)
            assert done.returncode != 0
            assert message in done.stderr
            assert path.read_text() == before
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_without_names_the_lock_has_exactly_the_bases_of_the_dockerfiles() -> None:
    before = Lock({"registry.example/gone:1": DIGEST}, "20261101T000000Z")
    assert renewed(before, [], None, dict.fromkeys(base_names(), DIGEST).__getitem__) == Lock(
        dict.fromkeys(base_names(), DIGEST), before.snapshot
    )
