"""What the launcher reads in the file that says which nodes train together."""

from pathlib import Path

import pytest

from ddpjob_core.api.membership import membership_text
from ddpjob_core.api.status import Membership as Written
from ddpjob_launcher.membership import Membership, newer_membership, read_membership


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", "3", '{"generation": -1, "nodes": 1}', '{"generation": 0, "nodes": 0}', "[" * 9000]
)
def test_a_text_that_the_operator_did_not_write_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "membership").write_text(text)
    assert read_membership(str(tmp_path / "membership")) is None
    assert newer_membership(str(tmp_path / "membership"), Membership(0, 1)) is None


def test_what_the_operator_writes_is_read(tmp_path: Path) -> None:
    (tmp_path / "membership").write_text(membership_text(Written(attempt=3, generation=5, nodes=12)))
    assert read_membership(str(tmp_path / "membership")) == Membership(5, 12)
    assert read_membership(str(tmp_path / "missing")) is None


@pytest.mark.parametrize(("known", "newer"), [((4, 9), True), ((5, 11), True), ((5, 12), False), ((6, 12), False)])
def test_an_older_membership_is_not_followed(tmp_path: Path, known: tuple[int, int], *, newer: bool) -> None:
    (tmp_path / "membership").write_text('{"generation": 5, "nodes": 12}')
    found = newer_membership(str(tmp_path / "membership"), Membership(*known))
    assert (found == Membership(5, 12)) is newer


def test_each_membership_has_a_rendezvous_of_its_own() -> None:
    environment = {"PET_RDZV_ID": "uid-0", "PET_NNODES": "2", "DDPJOB_NODES": "2"}
    Membership(5, 12).set_environment(environment)
    assert environment == {"PET_RDZV_ID": "uid-0-5-12", "PET_NNODES": "12", "DDPJOB_NODES": "12"}
