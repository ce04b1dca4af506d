"""What the pages name is there: files, headings, targets of make and variables."""

import re
from pathlib import Path

import pytest

from hack.cache import ROOT

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
MAKEFILE = (ROOT / "Makefile").read_text()
# What a path on a page may be relative to, and what it then begins with.
TOPS = (ROOT, ROOT / "operator", ROOT / "trainer")
FOLDERS = {
    path.name for top in TOPS for path in top.iterdir() if path.is_dir() and not path.name.startswith((".", "_"))
}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """A page without its code blocks, whose `#` is not a heading and whose brackets are not links."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def links(page: Path) -> list[str]:
    """What a page links to in this repository."""
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def anchors(page: Path) -> set[str]:
    """The names under which a page's headings are linked to."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    broken = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_to_a_file_and_a_heading_of_it(page: Path) -> None:
    assert broken_links(page) == []


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# The one\n[a](page.md#the-one) [b](#the-other) [c](gone.md) [d](https://example.com/x.md)\n")
    assert broken_links(page) == ["#the-other", "gone.md"]


def named_files(page: Path) -> set[str]:
    """The files and folders of this repository that a page names: `hack/lint`, `ddpjob_core/decide.py`."""
    return set(re.findall(rf"`((?:{'|'.join(sorted(FOLDERS))})(?:/[\w.*-]+)+)/?`", prose(page)))


def missing_files(page: Path) -> list[str]:
    return [name for name in sorted(named_files(page)) if not any(any(top.glob(name)) for top in TOPS)]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_files_that_a_page_names_exist(page: Path) -> None:
    assert missing_files(page) == []


def test_files_that_do_not_exist_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "`hack/lint/rooms.py` `ddpjob_core/decide.py` `tests/unit/core/*.py` `hack/gone.py` `ddpjob/gone/*.py`\n"
    )
    assert missing_files(page) == ["ddpjob/gone/*.py", "hack/gone.py"]


def shown_targets() -> set[str]:
    """What `make help` shows."""
    return set(re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.MULTILINE))


def test_help_shows_every_target_but_the_one_that_the_others_begin_with() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert phony is not None
    assert set(phony[1].split()) - shown_targets() == {"bootstrap"}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_targets_that_a_page_names_are_shown_by_help(page: Path) -> None:
    assert set(re.findall(r"(?:`|^\$ |^|\s&& )make ([a-z][a-z-]*)", page.read_text(), re.MULTILINE)) <= shown_targets()


def test_the_variables_that_the_readme_sets_for_make_are_shown_by_help() -> None:
    shown = set(re.findall(r"([A-Z_]+)=", "".join(re.findall(r'^\t@echo "Variables: .*$', MAKEFILE, re.MULTILINE))))
    commands = re.findall(r"`((?:[A-Z_]+=\S+ )+)make [a-z-]+`", (ROOT / "README.md").read_text())
    named = {name for command in commands for name in re.findall(r"([A-Z_]+)=", command)}
    assert named, "the README says how to use a cluster that is there"
    assert named <= shown


def test_the_variables_that_help_shows_are_read_somewhere() -> None:
    shown = re.findall(r"([A-Z_]+)=", "".join(re.findall(r'^\t@echo "Variables: .*$', MAKEFILE, re.MULTILINE)))
    code = "".join(path.read_text() for path in (ROOT / "hack").rglob("*.py"))
    assert [name for name in shown if f'"{name}"' not in code] == []
