"""The bytes of a request."""

import pytest

from ddpjob_operator.request_head import RequestHead

SIGNED = {"Authorization": "Bearer token"}


def lines(server: str, method: str, address: str, content: bytes | None = None) -> tuple[str, set[str], bytes]:
    """First line, headers and body."""
    sent = RequestHead(server, "tester").request(method, address, SIGNED, content)
    head, _, body = sent.partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    return first, set(rest), body


@pytest.mark.parametrize(
    ("server", "first", "host"),
    [
        ("https://10.0.0.1:443", "GET /api?a=b%2Fc HTTP/1.1", "10.0.0.1"),
        ("https://[fd00::1]:6443", "GET /api?a=b%2Fc HTTP/1.1", "[fd00::1]:6443"),
        ("https://rancher.example/k8s/clusters/c-1/", "GET /k8s/clusters/c-1/api?a=b%2Fc HTTP/1.1", "rancher.example"),
        ("https://bücher.example", "GET /api?a=b%2Fc HTTP/1.1", "xn--bcher-kva.example"),
    ],
)
def test_it_names_the_server_as_it_is_reached_and_its_path_comes_first(server: str, first: str, host: str) -> None:
    said, headers, body = lines(server, "GET", "/api?a=b%2Fc")
    assert (said, body) == (first, b"")
    assert headers == {
        f"Host: {host}",
        "User-Agent: tester",
        "Accept: application/json",
        "Accept-Encoding: gzip",
        "Authorization: Bearer token",
    }


@pytest.mark.parametrize(("method", "kind"), [("POST", "application/json"), ("PATCH", "application/merge-patch+json")])
def test_a_body_has_its_length_and_kind(method: str, kind: str) -> None:
    first, headers, body = lines("http://a", method, "/api", b'{"a":1}')
    assert (first, body) == (f"{method} /api HTTP/1.1", b'{"a":1}')
    assert headers >= {"Content-Length: 7", f"Content-Type: {kind}"}


def test_each_request_has_the_newest_signature() -> None:
    head = RequestHead("http://a", "tester")
    for token in ("one", "one", "two", "one"):
        assert f"\r\nAuthorization: Bearer {token}\r\n".encode() in head.request(
            "GET", "/", {"Authorization": f"Bearer {token}"}, None
        )
    assert b"Authorization" not in head.request("GET", "/", {}, None)


@pytest.mark.parametrize("address", ["/a b", "/a\r\nX: y", "/a\nb", "/\0", "/a\tb", "/ä"])
def test_an_address_cannot_bring_headers_of_its_own(address: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        RequestHead("http://a", "tester").request("GET", address, {}, None)


def test_a_token_with_the_end_of_a_line_in_it_is_refused_and_not_shown() -> None:
    with pytest.raises(ValueError, match="Authorization") as raised:
        RequestHead("http://a", "tester").request("GET", "/", {"Authorization": "Bearer s3cret\r\nX: y"}, None)
    assert "s3cret" not in str(raised.value)
