"""What `python -m ddpjob_trainer.doctor` reports for sound ranks and for ranks that cannot train together."""

import re
from dataclasses import replace

from training import TORCHRUN, alone, whole

from ddpjob_trainer.doctor import Versions, equal
from tests.ports import free_port

DOCTOR = ("-m", "ddpjob_trainer.doctor")


def test_sound_ranks_print_what_they_have_and_meet() -> None:
    port = free_port()
    said = whole(2, *DOCTOR, variables={**TORCHRUN, "DDPJOB_METRICS_PORT": str(port)}).output
    lines = re.findall(r"^\[rank (\d)\] (ok  |FAIL) (.*)$", said, re.MULTILINE)
    assert {outcome for _, outcome, _ in lines} == {"ok  "}
    for rank in ("0", "1"):
        own = [text for number, _, text in lines if number == rank]
        assert f"torchrun: rank {rank} of 2, on node 0" in own[0]
        assert any(text.startswith("backends gloo") for text in own)
        assert f"port {port + int(rank)} for metrics and progress is free" in own
    assert ("0", "ok  ", "all_reduce over gloo among 2 ranks gives 1, expected 1") in lines


def test_a_process_alone_is_sound_too() -> None:
    lone = alone(*DOCTOR)
    assert (lone.code, "no master address needed" in lone.output) == (0, True)


def test_each_thing_that_keeps_a_rank_from_training_fails_and_is_named() -> None:
    place = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "digits-a0-0.digits.invalid", "MASTER_PORT": "29500"}
    lost = alone(*DOCTOR, variables=place)
    assert (lost.code, "FAIL MASTER_ADDR=digits-a0-0.digits.invalid does not resolve" in lost.output) == (1, True)
    nccl = alone(*DOCTOR, variables={"DDPJOB_BACKEND": "nccl"})
    assert (nccl.code, "FAIL the backend nccl needs a GPU for every process" in nccl.output) == (1, True)
    half = alone(*DOCTOR, variables={"RANK": "0"})
    assert (half.code, "FAIL WORLD_SIZE is not set" in half.output) == (1, True)


def test_another_torch_on_one_rank_fails_and_another_device_is_reported() -> None:
    own = Versions("3.13.5", "2.6.0", "12.4", "2.21.5", "NVIDIA H200")
    assert equal([own, own]).ok
    other = equal([own, own, replace(own, pytorch="2.5.1")])
    assert not other.ok
    assert other.text.startswith("rank 2 has pytorch 2.5.1, but rank 0 has 2.6.0")
    assert equal([own, replace(own, device="NVIDIA A100")]).ok
