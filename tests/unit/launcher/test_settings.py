"""What the operator sets is read once: a variable that is missing or malformed is named, and nothing is guessed."""

from typing import Any

import pytest

from ddpjob_core.api.launchers import Launcher
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.children.environment import pod_environment, shared_environment
from ddpjob_core.observations.observed import JobRecord
from ddpjob_launcher.errors import CannotStart
from ddpjob_launcher.settings import read_master, read_settings
from tests.unit.launcher.running import ENVIRONMENT


def environment_of(launcher: Launcher) -> dict[str, str]:
    raw: dict[str, Any] = {
        "nodes": 2,
        "procsPerNode": 4,
        "launcher": launcher.value,
        "trainer": {"image": "i", "script": "train.py"},
    }
    spec = DDPJobSpec.model_validate(raw)
    job = JobRecord(
        namespace="ml", name="digits", uid="u", resource_version="1", generation=1, deleting=False, spec=spec
    )
    return {**shared_environment(job, spec), **pod_environment(job, spec, 3, 1)}


@pytest.mark.parametrize("launcher", Launcher)
def test_the_operator_sets_all_that_the_launcher_reads(launcher: Launcher) -> None:
    settings = read_settings(environment_of(launcher))
    assert (settings.launcher, settings.module) == (launcher.value, launcher.traits.module)
    assert (settings.job, settings.namespace, settings.attempt) == ("digits", "ml", 3)
    assert (settings.node, settings.nodes, settings.program) == (1, 2, "train.py")
    assert (settings.rendezvous_port, settings.rendezvous_timeout, settings.grace_period) == (29500, 600, 30)
    assert not settings.local
    assert not settings.host_network


@pytest.mark.parametrize("launcher", [Launcher.PYTHON, Launcher.MPIRUN])
def test_launchers_other_than_torchrun_find_master_and_processes(launcher: Launcher) -> None:
    master = read_master(environment_of(launcher))
    assert (master.address, master.port, master.processes) == ("digits-a3-0.digits", 29500, 4)


@pytest.mark.parametrize("name", ENVIRONMENT)
def test_a_variable_that_is_missing_is_named(name: str) -> None:
    environment = {key: value for key, value in ENVIRONMENT.items() if key != name}
    with pytest.raises(CannotStart, match=f"the environment variable {name}, which the operator sets, is missing"):
        read_settings(environment)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("DDPJOB_NODES", "must be a whole number, not 'two'"),
        ("DDPJOB_GRACE_PERIOD_SECONDS", "must be a number of seconds, not 'two'"),
    ],
)
def test_a_malformed_variable_is_named(name: str, message: str) -> None:
    with pytest.raises(CannotStart, match=f"the environment variable {name} {message}"):
        read_settings({**ENVIRONMENT, name: "two"})
