"""The tests that docs/security.md names are there, in the files that it links to."""

import re

import pytest

from hack.cache import ROOT

NAMED = re.findall(r"\[(test_\w+)\]\(\.\./(tests/[^)]+)\)", (ROOT / "docs/security.md").read_text())


def test_the_page_names_tests() -> None:
    assert len(NAMED) > 20


@pytest.mark.parametrize(("name", "file"), NAMED)
def test_a_test_that_the_page_names_is_there(name: str, file: str) -> None:
    assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE)
