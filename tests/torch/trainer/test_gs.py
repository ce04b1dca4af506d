"""Checkpoints of real trainings on a server of the protocol of Google's storage, by its real client."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from training import together, whole

from ddpjob_trainer.checkpointing.object_storage import ObjectFolder
from ddpjob_trainer.checkpointing.storage import Version

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]
MIB = 1 << 20


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Of a server with one bucket."""
    from gcp_storage_emulator.server import create_server  # noqa: PLC0415 only full runs have it

    server = create_server("127.0.0.1", 0, in_memory=True, default_bucket="bucket")
    server.start()
    port = server._api._httpd.server_address[1]
    variables = {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}", "GOOGLE_CLOUD_PROJECT": "team"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    yield variables
    server.stop()


def test_killed_in_the_middle_of_an_epoch_the_same_loss_curve_goes_on(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    program = str(Path(__file__).with_name("programs") / "resumable.py")
    undisturbed = whole(2, program, str(tmp_path))
    variables |= {"DDPJOB_UID": "uid", "DDPJOB_NAME": "digits", "DDPJOB_NAMESPACE": "team"}
    killed = together(2, program, "gs://bucket/jobs", "--die-at-step", "9", variables=variables)
    assert killed.code != 0
    resumed = whole(2, program, "gs://bucket/jobs", variables=variables)
    assert re.findall(r"RANK 0 STARTS AFTER (\d+)", resumed.output) == ["9"]
    assert "resuming from gs://bucket/jobs/uid/step-000000009.attempt-0" in resumed.output
    assert {**killed.losses, **resumed.losses} == undisturbed.losses
    assert resumed.digest == undisturbed.digest


@pytest.mark.usefixtures("variables")
def test_a_large_file_in_parts_and_a_second_save_of_a_step() -> None:
    store = ObjectFolder("gs://bucket/large")
    data = bytes(range(256)) * (4096 * 60)
    assert len(data) == 60 * MIB
    for step in (1, 2, 2):
        store.save(step, {"step": step}, lambda into: (into / "model").write_bytes(data) and None)
    reader = ObjectFolder("gs://bucket/large")
    found = next(reader.newest())
    assert found.version == Version(0, 2)
    assert (found.folder / "model").read_bytes() == data
