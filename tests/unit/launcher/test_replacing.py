"""What launcher and library read and write in the store where the ranks meet."""

from ddpjob_launcher import replacing
from ddpjob_trainer.process import meeting


def test_launcher_and_library_name_what_is_in_the_store_alike() -> None:
    names = ("GENERATION", "SUBSTITUTED", "MEMBERSHIP", "ABANDONED", "READY")
    assert [getattr(replacing, name) for name in names] == [getattr(meeting, name) for name in names]
    for number in (0, 1, 17):
        assert replacing.ready_key(number) == meeting.ready_key(number)
        assert replacing.holder_key(number) == meeting.holder_key(number)
        assert replacing.met_key(number) == meeting.met_key(number, meeting.IN_GROUP)


def test_a_pod_without_workers_yet_hears_that_no_agent_restarts_them() -> None:
    found = replacing.Replacing(0)
    found.end_restarts()
    assert found.final
