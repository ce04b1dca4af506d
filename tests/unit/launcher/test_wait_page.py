"""The page of a node that waits."""

import http.client
import json
import socket
from http import HTTPStatus

import pytest

from ddpjob_launcher.wait_page import WaitPage
from tests.ports import free_port


def asked(port: int, path: str = "/progress") -> tuple[int, bytes]:
    """The status and body that a client gets, who closes the connection when it has the answer, as the operator."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    client.request("GET", path)
    response = client.getresponse()
    answer = response.status, response.read()
    client.close()
    return answer


def test_the_page_of_a_wait_answers_until_it_is_closed_and_leaves_its_port_to_the_program() -> None:
    port = free_port()
    page = WaitPage(port)
    page.show("NameNotResolved", "a-0 does not exist yet")
    page.show("Node0NotReached", "a-0:29500 does not answer yet")
    status, body = asked(port)
    assert status == HTTPStatus.OK
    assert json.loads(body) == {"waiting": {"reason": "Node0NotReached", "message": "a-0:29500 does not answer yet"}}
    assert asked(port, "/metrics") == (HTTPStatus.NOT_FOUND, b"")
    page.close()
    # As a program would that knows nothing of SO_REUSEADDR.
    with socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET) as other:
        other.bind(("", port))


def test_a_client_that_says_nothing_does_not_keep_the_page_from_closing() -> None:
    port = free_port()
    page = WaitPage(port)
    page.show("NameNotResolved", "")
    with socket.create_connection(("127.0.0.1", port)):
        page.close()
    with pytest.raises(ConnectionRefusedError):
        asked(port)


def test_a_page_whose_port_is_taken_does_no_harm() -> None:
    with socket.create_server(("", 0)) as taken:
        page = WaitPage(taken.getsockname()[1])
        page.show("NameNotResolved", "")
        page.close()
    without_port = WaitPage(0)
    without_port.show("NameNotResolved", "")
    without_port.close()
