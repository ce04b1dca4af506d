"""What the core and the launcher both know of a process that was asked to stop."""

from ddpjob_core.observations.failure_class import SIGTERM_EXIT_CODE
from ddpjob_launcher.signals import AGREED_STOP


def test_core_and_launcher_agree_on_the_exit_code_of_a_process_that_was_asked_to_stop() -> None:
    assert SIGTERM_EXIT_CODE == AGREED_STOP
