"""Amounts and times of PBS and Slurm in the units of Kubernetes."""

import pytest

from ddpjob.convert.resources import pbs_memory, pbs_seconds, quantity, slurm_memory
from ddpjob.convert.resources import slurm_seconds as seconds_of


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("10GB", "10Gi"),
        ("10gb", "10Gi"),
        ("512mb", "512Mi"),
        ("2tb", "2048Gi"),
        ("4kb", "4Ki"),
        ("100", "100"),
        ("100b", "100"),
        ("2w", "16"),
        ("4gw", "32Gi"),
        ("ten", None),
    ],
)
def test_memory_of_pbs_is_counted_in_powers_of_1024(text: str, size: str | None) -> None:
    amount = pbs_memory(text)
    assert (quantity(amount) if amount is not None else None) == size


@pytest.mark.parametrize(
    ("text", "size"),
    [("64G", "64Gi"), ("1500", "1500Mi"), ("3T", "3072Gi"), ("9K", "9Ki"), ("4GB", "4Gi"), ("x", None)],
)
def test_memory_of_slurm_is_in_mebibytes_without_a_unit(text: str, size: str | None) -> None:
    amount = slurm_memory(text)
    assert (quantity(amount) if amount is not None else None) == size


def test_an_amount_that_no_unit_divides_is_rounded_down_to_mebibytes() -> None:
    assert quantity(10 * 1024**3 // 3) == "3413Mi"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("00:05:00", 300), ("48:00:00", 172800), ("10:30", 630), ("90", 90), ("1:0:0.5", 3600), ("soon", None)],
)
def test_walltime_of_pbs_is_seconds(text: str, seconds: int | None) -> None:
    assert pbs_seconds(text) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("90:30", 5430),
        ("2:30:15", 9015),
        ("1-2", 93600),
        ("1-2:30", 95400),
        ("1-02:30:15", 95415),
        ("UNLIMITED", None),
        ("1-", None),
    ],
)
def test_every_form_of_slurms_time_is_seconds(text: str, seconds: int | None) -> None:
    assert seconds_of(text) == seconds
