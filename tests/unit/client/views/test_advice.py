"""What a failure means, and what to do about it."""

import pytest

from ddpjob.views.advice import advice, meaning
from ddpjob_core.api.status import Failure
from ddpjob_core.observations.failure_class import FailureClass


@pytest.mark.parametrize("kind", list(FailureClass))
def test_every_class_of_failures_has_a_meaning_and_something_to_do(kind: FailureClass) -> None:
    failure = Failure(failure_class=kind.value, reason="R", message="m")
    assert meaning(failure)
    assert advice(failure)


def test_a_class_of_a_newer_version_is_not_an_error() -> None:
    failure = Failure(failure_class="Unheard", reason="R", message="m")
    assert meaning(failure) == ""
    assert advice(failure) == []


def test_a_lost_pod_sends_to_its_own_node() -> None:
    failure = Failure(failure_class="PodLost", reason="NodeLost", message="m", node_name="node-7")
    assert advice(failure)[0].endswith("kubectl describe node node-7")


@pytest.mark.parametrize(
    ("signal", "said", "unsaid"),
    [("SIGSEGV", "Python stack", "no stack"), ("SIGKILL", "no stack", "Python stack"), ("SIGUSR1", "sent", "stack")],
)
def test_a_stack_is_promised_only_for_a_signal_that_leaves_one(signal: str, said: str, unsaid: str) -> None:
    told = " ".join(advice(Failure(failure_class="Signal", reason="Signal", message="m", signal=signal)))
    assert said in told
    assert unsaid not in told


NO_GPUS = "the job requests no GPUs"
SEES_NONE = "the process sees no GPU"
NO_CUDA = "has no CUDA"


@pytest.mark.parametrize(
    ("message", "gpus", "said"),
    [
        ("RuntimeError: No CUDA GPUs are available", False, NO_GPUS),
        ("RuntimeError: Found no NVIDIA driver on your system.", False, NO_GPUS),
        ("ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!", False, NO_GPUS),
        ("RuntimeError: No CUDA GPUs are available", True, SEES_NONE),
        ("RuntimeError: No CUDA GPUs are available", None, SEES_NONE),
        ("AssertionError: Torch not compiled with CUDA enabled", False, NO_CUDA),
        ("RuntimeError: Distributed package doesn't have NCCL built in", True, NO_CUDA),
        ("RuntimeError: CUDA error: invalid device ordinal", True, "for each of spec.procsPerNode"),
    ],
)
def test_an_error_for_want_of_a_gpu_says_whether_one_was_requested(
    message: str, said: str, *, gpus: bool | None
) -> None:
    found = advice(Failure(failure_class="Error", reason="ExitCode", message=f"rank 0: {message}"), gpus=gpus)
    assert said in found[0]


def test_other_errors_say_nothing_of_gpus() -> None:
    found = advice(Failure(failure_class="Error", reason="ExitCode", message="ValueError: bad batch"), gpus=False)
    assert "GPU" not in " ".join(found)


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ("PermissionError: [Errno 13] Permission denied: 'model.pt'", True),
        ("RuntimeError: cannot open /root/out: Permission denied", True),
        ('chdir to cwd ("/root/project") set in config.json failed: permission denied: unknown', True),
        ("PermissionError: [Errno 1] Operation not permitted: '/data'", True),
        ("ValueError: the data ran out", False),
    ],
)
def test_a_file_that_may_not_be_written_is_explained_by_the_user_of_the_pod(message: str, named: bool) -> None:  # noqa: FBT001
    said = " ".join(advice(Failure(failure_class="Error", reason="Error", message=message)))
    assert ("securityContext.runAsUser" in said) is named


def test_an_init_container_that_fails_may_have_counted_on_being_root() -> None:
    # What it says of it, such as `chown: /data: Operation not permitted`, is in its log alone.
    said = advice(Failure(failure_class="Error", reason="InitContainerFailed", message="exit code 1"))
    assert "securityContext.runAsUser: 0" in said[0]
