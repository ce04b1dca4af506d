"""Commands on a terminal."""

import signal

import pytest

from tests.apiserver.client.program import DIGITS, Program, jobs
from tests.apiserver.controlplane import Client, ControlPlane
from tests.apiserver.terminal import OnTerminal

pytestmark = pytest.mark.timeout(120)


def test_ctrl_c_stops_watching_and_not_the_job(control_plane: ControlPlane, namespace: str, admin: Client) -> None:
    place = ("--kubeconfig", str(control_plane.admin_kubeconfig), "-n", namespace)
    terminal = OnTerminal("run", *place, "-f", str(DIGITS))
    terminal.wait_for("the operator has not seen it yet")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert f"ddpjob suspend digits -n {namespace} stops it" in terminal.shown
    assert "Traceback" not in terminal.shown
    assert jobs(admin, namespace) == ["digits"]


def test_colours_appear_on_a_terminal_alone_and_not_with_no_color(
    control_plane: ControlPlane, namespace: str, program: Program
) -> None:
    red = "\x1b[31m"
    arguments = ("doctor", "--kubeconfig", str(control_plane.admin_kubeconfig), "-n", namespace)
    for environment, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        terminal = OnTerminal(*arguments, environment=environment)
        assert terminal.end() == 1
        assert (red in terminal.shown) is coloured
        assert "it has no deployment" in terminal.shown
    assert "\x1b" not in program("doctor").output


def test_deleting_asks_on_a_terminal_and_no_means_no(
    control_plane: ControlPlane, namespace: str, admin: Client, program: Program
) -> None:
    program("run", "--no-follow", "-f", str(DIGITS))
    place = ("--kubeconfig", str(control_plane.admin_kubeconfig), "-n", namespace)
    for answer, code, left in (("n", 1, ["digits"]), ("y", 0, [])):
        terminal = OnTerminal("delete", *place, "digits")
        terminal.wait_for("Delete?")
        terminal.type(f"{answer}\n")
        assert terminal.end() == code
        assert jobs(admin, namespace) == left


def test_top_shows_jobs_as_they_come(control_plane: ControlPlane, namespace: str, program: Program) -> None:
    place = ("--kubeconfig", str(control_plane.admin_kubeconfig), "-n", namespace)
    terminal = OnTerminal("top", *place, "--interval", "0.5")
    terminal.wait_for("LOSS HISTORY")
    assert "digits" not in terminal.shown
    program("run", "--no-follow", "-f", str(DIGITS))
    terminal.wait_for("digits")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert "Traceback" not in terminal.shown
