"""The tests that docs/security.md names are there, in the files that it links to."""

import re

import pytest

from hack.cache import ROOT

PAGE = (ROOT / "docs/security.md").read_text()
NAMED = re.findall(r"\[(test_\w+)\]\(\.\./(tests/[^)]+)\)", PAGE)
HOSTILE = PAGE.partition("## What comes of hostile jobs")[2].partition("\n## ")[0]
ROWS = [row.strip("|").split(" | ") for row in HOSTILE.splitlines() if row.startswith("| ")][1:]


def test_the_page_names_tests() -> None:
    assert len(NAMED) > 20
    assert len(ROWS) > 25


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip()[:40])
def test_each_row_of_hostile_jobs_says_what_comes_of_it_and_names_a_test(row: list[str]) -> None:
    what, comes, shown = map(str.strip, row)
    assert what
    assert comes
    assert re.fullmatch(r"(\[test_\w+\]\(\.\./tests/[^)]+\)(, )?)+", shown)


@pytest.mark.parametrize(("name", "file"), NAMED)
def test_a_test_that_the_page_names_is_there(name: str, file: str) -> None:
    assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE)
