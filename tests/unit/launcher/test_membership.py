"""What the launcher reads in the file that says which nodes train together."""

from pathlib import Path

import pytest

from ddpjob_core.api.membership import membership_text
from ddpjob_core.api.status import Member
from ddpjob_core.api.status import Membership as Written
from ddpjob_launcher.membership import Membership, newer_membership, read_membership


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        "3",
        '{"generation": -1, "nodes": 1}',
        '{"generation": 0, "nodes": 0}',
        "[" * 9000,
        '{"generation": 1, "nodes": 2, "formed": 2}',
        '{"generation": 1, "nodes": 2, "members": [1]}',
    ],
)
def test_a_text_that_the_operator_did_not_write_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "membership").write_text(text)
    assert read_membership(str(tmp_path / "membership")) is None
    assert newer_membership(str(tmp_path / "membership"), Membership(0, 1, 0)) is None


def test_what_the_operator_writes_is_read(tmp_path: Path) -> None:
    (tmp_path / "membership").write_text(membership_text(Written(attempt=3, generation=5, nodes=12)))
    assert read_membership(str(tmp_path / "membership")) == Membership(5, 12, 5)
    assert read_membership(str(tmp_path / "missing")) is None


@pytest.mark.parametrize(("known", "newer"), [((4, 9), True), ((5, 11), True), ((5, 12), False), ((6, 12), False)])
def test_an_older_membership_is_not_followed(tmp_path: Path, known: tuple[int, int], *, newer: bool) -> None:
    (tmp_path / "membership").write_text('{"generation": 5, "nodes": 12}')
    found = newer_membership(str(tmp_path / "membership"), Membership(*known, known[0]))
    assert (found == Membership(5, 12, 5)) is newer


def test_each_membership_has_a_rendezvous_of_its_own() -> None:
    environment = {"PET_RDZV_ID": "uid-0", "PET_NNODES": "2", "DDPJOB_NODES": "2"}
    Membership(5, 12, 5).set_environment(environment)
    assert environment == {
        "PET_RDZV_ID": "uid-0-5-12",
        "PET_NNODES": "12",
        "DDPJOB_NODES": "12",
        "DDPJOB_GENERATION": "5",
    }


def test_a_pod_that_comes_later_finds_the_rendezvous_of_those_that_have_met(tmp_path: Path) -> None:
    lost = [Member(ordinal=2, generation=7)]
    written = Written(attempt=3, generation=7, nodes=12, formed=5, members=lost)
    (tmp_path / "membership").write_text(membership_text(written))
    found = read_membership(str(tmp_path / "membership"))
    assert found == Membership(7, 12, 5, ((2, 7),))
    environment = {"PET_RDZV_ID": "uid-0"}
    found.set_environment(environment)
    assert environment["PET_RDZV_ID"] == "uid-0-5-12"
    assert [found.takes_a_place(node) for node in (1, 2)] == [False, True]
    # After the next change of size it is a node as the others are.
    resized = Membership(8, 11, 8, found.members)
    assert (resized.member(2), resized.takes_a_place(2)) == (7, False)
