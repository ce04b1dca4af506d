"""Checkpoints of real trainings on a real server of S3's protocol."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from training import alone, together, whole

from ddpjob_trainer.checkpointing.object_storage import ObjectFolder
from ddpjob_trainer.checkpointing.storage import ResumeError, Version

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]
MIB = 1 << 20


@dataclass(frozen=True)
class Server:
    """A server with one bucket."""

    variables: dict[str, str]
    client: Any

    def objects(self, prefix: str) -> list[str]:
        found = self.client.list_objects_v2(Bucket="bucket", Prefix=prefix).get("Contents", [])
        return [each["Key"].removeprefix(f"{prefix}/") for each in found]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    import boto3  # noqa: PLC0415 only full runs have it
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 likewise

    running = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    # Its objects outlive it in this process.
    urlopen(Request(f"http://{host}:{port}/moto-api/reset", method="POST")).close()
    variables = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "name",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket="bucket")
    yield Server(variables, client)
    running.stop()


@pytest.fixture(scope="module")
def program() -> str:
    return str(Path(__file__).with_name("programs") / "resumable.py")


@pytest.mark.parametrize("options", [(), ("--asynchronous",)], ids=["at once", "asynchronous"])
def test_killed_in_the_middle_of_an_epoch_the_same_loss_curve_goes_on_bit_for_bit(
    program: str, tmp_path: Path, server: Server, options: tuple[str, ...]
) -> None:
    undisturbed = whole(2, program, str(tmp_path))
    variables = {**server.variables, "DDPJOB_UID": "uid", "DDPJOB_NAME": "digits", "DDPJOB_NAMESPACE": "team"}
    command = (program, "s3://bucket/jobs", *options)
    killed = together(2, *command, "--die-at-step", "9", variables=variables)
    assert killed.code != 0
    resumed = whole(2, *command, variables=variables)
    start = int(re.findall(r"RANK 0 STARTS AFTER (\d+)", resumed.output)[0])
    assert start in ((6, 9) if options else (9,))
    assert f"resuming from s3://bucket/jobs/uid/step-{start:09d}.attempt-0" in resumed.output
    assert {**killed.losses, **resumed.losses} == undisturbed.losses
    assert resumed.digest == undisturbed.digest
    steps = (15, 18, 21)
    files = ("checkpoint.json", "model.safetensors", "optimizer.safetensors", "random.safetensors")
    assert server.objects("jobs/uid") == [
        "job.json",
        *(f"step-{step:09d}.attempt-0/{file}" for step in steps for file in files),
    ]
    # Another job of the same bucket goes on from there.
    other = {**server.variables, "DDPJOB_UID": "later", "DDPJOB_NAME": "digits-2", "DDPJOB_NAMESPACE": "team"}
    later = whole(2, program, "s3://bucket/jobs", "--epochs", "4", variables={**other, "DDPJOB_RESUME_FROM": "digits"})
    assert "RANK 0 STARTS AFTER 21" in later.output


def test_what_misses_is_said_before_the_first_step(program: str, server: Server) -> None:
    missing = alone(program, "s3://no-such-bucket/jobs", variables=server.variables)
    assert missing.code == 1
    assert "no-such-bucket" in missing.output
    gone = {**server.variables, "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1"}
    away = alone(program, "s3://bucket/jobs", variables=gone)
    assert away.code == 1
    assert "the checkpoints in s3://bucket/jobs cannot currently be listed" in away.output
    assert "STEP 1 " not in missing.output + away.output


def test_large_files_in_parts_and_damage(server: Server) -> None:
    store = ObjectFolder("s3://bucket/large")
    data = bytes(range(256)) * (4096 * 60)
    assert len(data) == 60 * MIB
    for step in (1, 2, 2):
        store.save(step, {"step": step}, lambda into: (into / "model").write_bytes(data) and None)
    assert store.versions() == [Version(0, 2), Version(0, 1)]
    reader = ObjectFolder("s3://bucket/large")
    found = next(reader.newest())
    assert (found.folder / "model").read_bytes() == data
    server.client.put_object(Bucket="bucket", Key="large/step-000000002.attempt-0.1/model", Body=data[:-1] + b"x")
    assert next(reader.newest()).version == Version(0, 1)


@pytest.mark.usefixtures("server")
def test_a_server_that_does_not_answer_is_not_taken_for_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectFolder("s3://bucket/away")
    store.save(1, {}, lambda into: (into / "model").write_bytes(b"weights") and None)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(ResumeError, match="cannot currently be listed"):
        next(ObjectFolder("s3://bucket/away").newest())
    with pytest.raises(OSError, match="Connect"):
        ObjectFolder("s3://bucket/away").save(2, {}, lambda into: (into / "model").write_bytes(b"more") and None)
