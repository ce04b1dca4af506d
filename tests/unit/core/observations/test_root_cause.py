"""Which of the things that went wrong stands in status.failure."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from ddpjob_core.observations.attempt import view_attempt
from ddpjob_core.observations.failure_class import FailureClass
from ddpjob_core.observations.observe import terminated
from ddpjob_core.observations.observed import InitFailure, PodRecord, Running, Terminated, Waiting
from ddpjob_core.observations.root_cause import find_root_cause

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def pod(ordinal: int, trainer: Any = None, **fields: Any) -> PodRecord:
    record = PodRecord(
        "n", f"j-a0-{ordinal}", f"u{ordinal}", "1", "job", "j", 0, ordinal, "Running", node_name=f"node-{ordinal}"
    )
    return replace(record, trainer=trainer or Running(NOW), **fields)


def ended(code: int, *failures: dict[str, Any], reason: str = "Error", text: str = "") -> Terminated:
    message = json.dumps({"exitCode": code, "failures": list(failures)}) if failures else text
    return terminated(code, message, reason=reason, finished_at=NOW)


def not_begun(ordinal: int, init: Terminated) -> PodRecord:
    """A pod whose init container has ended like this, as its kubelet leaves it."""
    waits = Waiting("PodInitializing", "")
    return pod(ordinal, waits, phase="Failed", init_failure=InitFailure("fetch", init))


NO_PROGRAM = 'exec: "fetch": executable file not found in $PATH'
LOST = {"rank": 0, "exitCode": 1, "time": 1.0, "message": "RuntimeError: Connection closed by peer [10.0.0.2]:4711"}
TIMED_OUT = {"rank": 0, "exitCode": 1, "time": 1.0, "message": "RuntimeError: Timed out waiting 1800000ms for recv"}
SPOILT = {"rank": 3, "exitCode": 1, "time": 5.0, "message": "NonFiniteError: loss became nan at step 8 on rank 3"}
KILLED = {"rank": 3, "signal": "SIGKILL", "time": 9.0, "message": ""}
RAISED = {
    "rank": 2,
    "exitCode": 1,
    "time": 5.0,
    "message": "ValueError: bad",
    "traceback": "File train.py\nValueError: bad",
}
EXITED = {"rank": 1, "exitCode": 7, "time": 6.0, "message": ""}
ASKED = json.dumps({"exitCode": 143, "stopped": True, "stoppedBy": "SIGTERM", "message": "stopped by SIGTERM"})
AGREED = json.dumps({"exitCode": 143, "stopped": True, "message": "the ranks agreed to stop"})
STOPPED = {"rank": 1, "signal": "SIGTERM", "time": 0.5, "message": ""}


@pytest.mark.parametrize(
    ("pods", "reason", "rank", "ordinal"),
    [
        ([pod(0, ended(1, LOST)), pod(1, ended(137, KILLED))], "Signal", 3, 1),
        ([pod(0, ended(1, LOST)), pod(1, ended(1, RAISED))], "ExitCode", 2, 1),
        ([pod(0, ended(1, TIMED_OUT)), pod(1, ended(7, EXITED))], "ExitCode", 1, 1),
        ([pod(0, ended(1, LOST)), pod(1, ended(1, TIMED_OUT))], "CollectiveTimeout", 0, 1),
        # Node 1 alone was stopped from outside: what the others say follows from that.
        ([pod(0, ended(1, LOST)), pod(1, ended(143, text=ASKED))], "Signal", None, 1),
        ([pod(0, ended(1, RAISED)), pod(1, ended(143, text=ASKED))], "Signal", None, 1),
        ([pod(0, ended(143, text=AGREED)), pod(1, ended(143, text=ASKED))], "Signal", None, 1),
        ([pod(0, ended(1, LOST)), pod(1, ended(143, text=AGREED))], "ConnectionLost", 0, 0),
        ([pod(0, ended(1, RAISED)), pod(1, ended(7, EXITED))], "ExitCode", 2, 0),
        ([pod(0, ended(1, STOPPED, EXITED)), pod(1)], "ExitCode", 1, 0),
        ([pod(0, ended(1, LOST)), pod(1, ended(137, reason="OOMKilled"))], "OOMKilled", None, 1),
        ([pod(0, ended(1, RAISED)), pod(1, ended(137, reason="OOMKilled"))], "OOMKilled", None, 1),
        ([pod(0, ended(1, LOST)), pod(1, phase="Failed", reason="Evicted")], "Evicted", None, 1),
        ([pod(0, ended(1, LOST)), pod(1, deletion_time=NOW)], "PodDeleted", None, 1),
        ([pod(0, ended(1, LOST))], "PodMissing", None, 1),
        ([pod(0, ended(128, reason="StartError", text="exec: not found")), pod(1)], "StartError", None, 0),
        ([pod(0, ended(2, text="usage: train.py")), pod(1)], "ExitCode", None, 0),
        ([pod(0), not_begun(1, ended(3, text="no such bucket"))], "InitContainerFailed", None, 1),
        ([pod(0), not_begun(1, ended(137, reason="OOMKilled"))], "InitContainerFailed", None, 1),
        (
            [pod(0), not_begun(1, ended(128, reason="StartError", text="exec: not found"))],
            "InitContainerFailed",
            None,
            1,
        ),
        ([pod(0), not_begun(1, ended(128, reason="StartError", text=NO_PROGRAM))], "CannotStart", None, 1),
        ([pod(0, ended(1, text="boom")), pod(1, ended(137))], "Signal", None, 1),
        (
            [pod(0, ended(1, {**RAISED, "message": "ValueError: bad rendezvous date", "rank": 0})), pod(1)],
            "ExitCode",
            0,
            0,
        ),
        (
            [
                pod(0, ended(1, {**LOST, "message": "RuntimeError: Gloo connectFullMesh failed"})),
                pod(1, ended(1, RAISED)),
            ],
            "ExitCode",
            2,
            1,
        ),
    ],
)
def test_the_cause_is_found_by_class_first_then_by_time_then_by_rank(
    pods: list[PodRecord], reason: str, rank: int | None, ordinal: int
) -> None:
    failure = find_root_cause(view_attempt("j", 0, 2, tuple(pods)), missing_is_failed=True)
    assert failure is not None
    assert (failure.reason, failure.rank, failure.ordinal) == (reason, rank, ordinal)
    assert failure.pod == f"j-a0-{ordinal}"


OOM = {"rank": 1, "signal": "SIGKILL", "time": 9.0, "message": "killed by the kernel: out of memory", "oom": True}


@pytest.mark.parametrize(
    ("ended_pod", "kind"),
    [
        (pod(1, ended(137, OOM)), FailureClass.OUT_OF_MEMORY),
        (pod(1, ended(137, reason="OOMKilled")), FailureClass.OUT_OF_MEMORY),
        # It used more disk than its limits allow; what is taken away for others has a condition that says so.
        (pod(1, phase="Failed", reason="Evicted"), FailureClass.ERROR),
        (pod(1, phase="Failed", reason="Evicted", disruption="TerminationByKubelet"), FailureClass.DISRUPTION),
        (pod(1, ended(143, text=ASKED), disruption="EvictionByEvictionAPI"), FailureClass.DISRUPTION),
        (pod(1, deletion_time=NOW), FailureClass.POD_LOST),
        (pod(1, ended(143, text=ASKED), deletion_time=NOW), FailureClass.POD_LOST),
        (pod(1, ended(137), deletion_time=NOW), FailureClass.POD_LOST),
        (pod(1, node_lost=True), FailureClass.POD_LOST),
        (pod(1, ended(137, KILLED)), FailureClass.SIGNAL),
        (pod(1, ended(1, RAISED), deletion_time=NOW), FailureClass.ERROR),
        (pod(1, ended(7, EXITED)), FailureClass.ERROR),
        (pod(1, ended(128, reason="StartError", text="exec: not found")), FailureClass.ERROR),
        (pod(1, ended(1, TIMED_OUT)), FailureClass.COLLECTIVE_TIMEOUT),
        (pod(1, ended(1, SPOILT)), FailureClass.NOT_FINITE),
        (pod(1, ended(1, LOST)), FailureClass.CONNECTION_LOST),
        (pod(1, ended(143, text=ASKED)), FailureClass.SIGNAL),
        (pod(1, ended(143, text=AGREED)), FailureClass.STOPPED),
        (pod(1, ended(143, {"rank": 2, "exitCode": 143, "time": 1.0, "message": ""})), FailureClass.STOPPED),
    ],
)
def test_every_class_of_failure_is_recognised(ended_pod: PodRecord, kind: FailureClass) -> None:
    attempt = view_attempt("j", 0, 2, (pod(0), ended_pod))
    failure = find_root_cause(attempt, missing_is_failed=True, lost_is_failed=True)
    assert failure is not None
    assert failure.failure_class == kind.value
    assert failure.pod == "j-a0-1"


def test_the_others_that_failed_are_listed_as_consequences() -> None:
    pods = (pod(0, ended(1, LOST, STOPPED)), pod(1, ended(137, KILLED)))
    failure = find_root_cause(view_attempt("j", 0, 2, pods), missing_is_failed=True)
    assert failure is not None
    assert (failure.rank, failure.signal) == (3, "SIGKILL")
    assert failure.consequences == [
        "rank 0: ConnectionLost: exited with code 1: RuntimeError: Connection closed by peer [10.0.0.2]:4711",
        "rank 1: Stopped: was killed by SIGTERM",
    ]


def test_a_thousand_consequences_fit_into_a_status() -> None:
    ends = [*(ended(1, {**LOST, "rank": rank}) for rank in range(1000)), ended(137, KILLED)]
    pods = tuple(pod(rank, end, name=f"j-a0-{rank:04}") for rank, end in enumerate(ends))
    failure = find_root_cause(view_attempt("j", 0, len(pods), pods), missing_is_failed=True)
    assert failure is not None
    assert failure.consequences is not None
    assert (len(failure.consequences), failure.consequences[-1]) == (9, "and 992 more")


def test_a_lost_node_is_a_failure_only_where_it_counts_as_one() -> None:
    attempt = view_attempt("j", 0, 2, (pod(0), pod(1, node_lost=True)))
    assert find_root_cause(attempt, missing_is_failed=True) is None
    failure = find_root_cause(attempt, missing_is_failed=True, lost_is_failed=True)
    assert failure is not None
    assert (failure.reason, failure.node_name) == ("NodeLost", "node-1")
    assert "kubectl describe node node-1" in failure.message


def test_an_exception_comes_with_its_traceback_exit_code_and_node() -> None:
    failure = find_root_cause(view_attempt("j", 0, 1, (pod(0, ended(1, RAISED)),)), missing_is_failed=True)
    assert failure is not None
    assert failure.message == "rank 2 exited with code 1: ValueError: bad"
    assert failure.traceback == "File train.py\nValueError: bad"
    assert (failure.exit_code, failure.node_name, failure.attempt) == (1, "node-0", 0)


def test_a_missing_pod_has_not_failed_while_pods_are_being_created() -> None:
    assert find_root_cause(view_attempt("j", 0, 2, (pod(0),)), missing_is_failed=False) is None


def test_without_a_report_the_message_says_where_to_look() -> None:
    failure = find_root_cause(view_attempt("j", 0, 1, (pod(0, ended(3)),)), missing_is_failed=True)
    assert failure is not None
    assert failure.message == "the container trainer of j-a0-0 exited with code 3; see kubectl logs j-a0-0"


def test_a_pod_that_is_gone_still_names_the_cause_where_its_end_was_seen() -> None:
    attempt = view_attempt("j", 0, 2, (pod(0, ended(1, LOST)),), vanished=(pod(1, ended(1, RAISED)),))
    failure = find_root_cause(attempt, missing_is_failed=True)
    assert failure is not None
    assert (failure.reason, failure.rank, failure.ordinal) == ("ExitCode", 2, 1)


def test_a_pod_that_is_gone_after_its_success_is_a_missing_one() -> None:
    attempt = view_attempt("j", 0, 2, (pod(0),), vanished=(pod(1, ended(0)),))
    failure = find_root_cause(attempt, missing_is_failed=True)
    assert failure is not None
    assert failure.reason == "PodMissing"


def test_an_init_container_that_failed_is_named_with_its_exit_code_and_its_log() -> None:
    attempt = view_attempt("j", 0, 1, (not_begun(0, ended(3)),))
    failure = find_root_cause(attempt, missing_is_failed=True)
    assert failure is not None
    assert (failure.failure_class, failure.exit_code) == ("Error", 3)
    assert failure.message == "the init container fetch of j-a0-0 exited with code 3; see kubectl logs j-a0-0 -c fetch"
    short = view_attempt("j", 0, 1, (not_begun(0, ended(137, reason="OOMKilled", text="lost its memory")),))
    failure = find_root_cause(short, missing_is_failed=True)
    assert failure is not None
    assert (failure.failure_class, failure.exit_code) == ("OutOfMemory", 137)
    assert failure.message == "the init container fetch of j-a0-0 exited with code 137 (OOMKilled): lost its memory"
