"""Answers in HTTP: what is one is read however it is cut into pieces, and anything else is refused."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpjob_core.engine.http_answer import LONGEST_HEAD, AnswerReader, HttpAnswer

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
PACKED = gzip.compress(b'{"a": "' + b"b" * 5000 + b'"}', mtime=0)
LIMIT = 10_000


def read(sent: bytes, *, pieces: int = 0, ended: bool = False) -> HttpAnswer | None:
    """The answer in these bytes, passed on at once or so many at a time."""
    reader = AnswerReader(LIMIT)
    size = pieces or max(len(sent), 1)
    for start in range(0, len(sent), size):
        answer = reader.feed(sent[start : start + size])
        if answer is not None:
            return answer
    return reader.end() if ended else None


WHOLE = [
    (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", 200, b"{}"),
    (b"HTTP/1.1 200\r\ncontent-LENGTH:2\r\n\r\n{}", 200, b"{}"),
    (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
    (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, b""),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, b""),
    (CHUNKED + b"2\r\n{}\r\n0\r\n\r\n", 200, b"{}"),
    (CHUNKED + b"1;name=value\r\n{\r\n1 \r\n}\r\n000\r\nTrailer: x\r\nOther: y\r\n\r\n", 200, b"{}"),
    (CHUNKED + b"A\r\n\r\n\r\n\r\n\r\n\r\n\r\n0\r\n\r\n", 200, b"\r\n" * 5),
    (CHUNKED + b"0\r\n\r\n", 200, b""),
    (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}", 201, b"{}"),
    (b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 100 \r\n\r\nHTTP/1.1 204 N\r\n\r\n", 204, b""),
    (
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(PACKED), PACKED),
        200,
        gzip.decompress(PACKED),
    ),
]


@pytest.mark.parametrize("pieces", [0, 1, 2, 3, 7])
@pytest.mark.parametrize(("sent", "status", "body"), WHOLE)
def test_an_answer_is_the_same_however_it_comes(sent: bytes, status: int, body: bytes, pieces: int) -> None:
    answer = read(sent, pieces=pieces)
    assert answer is not None
    assert (answer.head.status, answer.body, answer.goes_on) == (status, body, True)


@pytest.mark.parametrize(("sent", "status", "body"), WHOLE)
def test_an_answer_that_is_cut_off_is_none(sent: bytes, status: int, body: bytes) -> None:
    del status, body
    for length in range(len(sent)):
        assert read(sent[:length], ended=True) is None


def test_an_answer_without_a_length_ends_with_its_connection_which_takes_no_other_request() -> None:
    sent = b"HTTP/1.1 200 OK\r\n\r\n{}"
    assert read(sent) is None
    for pieces in (0, 1):
        answer = read(sent, pieces=pieces, ended=True)
        assert answer is not None
        assert (answer.body, answer.goes_on) == (b"{}", False)


@pytest.mark.parametrize(
    ("version", "connection", "goes_on"),
    [
        (b"1.1", b"", True),
        (b"1.1", b"Connection: close\r\n", False),
        (b"1.1", b"Connection: X-Other, Close\r\n", False),
        (b"1.0", b"", False),
        (b"1.0", b"Connection: keep-alive\r\n", True),
    ],
)
def test_the_server_says_whether_the_connection_takes_another_request(
    version: bytes, connection: bytes, *, goes_on: bool
) -> None:
    answer = read(b"HTTP/%b 200 OK\r\n%bContent-Length: 0\r\n\r\n" % (version, connection))
    assert answer is not None
    assert answer.goes_on is goes_on


def test_a_connection_on_which_more_than_the_answer_came_takes_no_other_request() -> None:
    answer = read(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n")
    assert answer is not None
    assert (answer.body, answer.goes_on) == (b"{}", False)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "not an HTTP response"),
        (b"HTTP/1.1 OK\r\n\r\n", "not an HTTP response"),
        (b"HTTP/1.1 2\xb2\xb2 OK\r\n\r\n", "not an HTTP response"),
        (b"HTTP/2 200\r\n\r\n", "not an HTTP response"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "change of protocol"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\n{}", "a length of"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}", "a length of"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", "a length of"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "content-length twice"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10001\r\n\r\n", "more than 10000 bytes"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "transfer encoding"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n", "both a length and chunks"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"a" * (LIMIT + 1), "more than 10000 bytes"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * LONGEST_HEAD + b"\r\n\r\n", "headers are too long"),
        (b"a" * (LONGEST_HEAD + 1), "headers are too long"),
        (CHUNKED + b"x\r\n", "a chunk of"),
        (CHUNKED + b"-1\r\n", "a chunk of"),
        (CHUNKED + b"0x2\r\n{}\r\n", "a chunk of"),
        (CHUNKED + b"1_0\r\n{}\r\n", "a chunk of"),
        (CHUNKED + b"f" * 40 + b"\r\n", "a chunk of"),
        (CHUNKED + b"\r\n", "a chunk of"),
        (CHUNKED + b"2711\r\n", "more than 10000 bytes"),
        (CHUNKED + b"2\r\n{}a\n0\r\n\r\n", "longer than was said"),
        (CHUNKED + b"2\r\n{}\ra0\r\n\r\n", "longer than was said"),
        (CHUNKED + b"2;" + b"a" * 5000, "line before a chunk is too long"),
        (CHUNKED + b"0\r\n" + b"T" * 5000, "line before a chunk is too long"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 1\r\n\r\na", "content encoding"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnone", "cannot be unpacked"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 20\r\n\r\n" + PACKED[:20], "does not end"),
    ],
)
def test_what_is_not_an_answer_is_refused(sent: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read(sent)
    with pytest.raises(ValueError, match=why):
        read(sent, pieces=1)


def test_a_small_answer_that_unpacks_to_a_large_one_is_refused() -> None:
    packed = gzip.compress(b"a" * 5_000_000)
    assert len(packed) < LIMIT
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    with pytest.raises(ValueError, match="more than 10000 bytes"):
        read(head + packed)


def test_trailers_without_an_end_are_not_read_for_ever() -> None:
    with pytest.raises(ValueError, match="too long"):
        read(CHUNKED + b"0\r\n" + b"A: b\r\n" * 50_000)


@given(st.binary(max_size=300), st.integers(1, 40))
def test_bytes_of_any_kind_are_an_answer_or_refused(noise: bytes, pieces: int) -> None:
    for begin in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n", CHUNKED):
        try:
            answer = read(begin + noise, pieces=pieces, ended=True)
        except ValueError:
            continue
        assert answer is None or len(answer.body) <= LIMIT


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=6), st.integers(1, 20))
def test_chunks_of_any_size_are_put_together(parts: list[bytes], pieces: int) -> None:
    sent = CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    answer = read(sent, pieces=pieces)
    assert answer is not None
    assert (answer.body, answer.goes_on) == (b"".join(parts), True)
