"""The changelog has a section for the version that is released."""

import pytest

from hack.cache import ROOT
from hack.console import StepError
from hack.project import project_version
from hack.release.changelog import check

TEXT = """\
# Changelog

## [1.1.0] - 2026-01-02

### Added

- something

## [1.0.0]

## [0.9.0]

- older
"""


def test_the_changelog_knows_the_version_of_the_project() -> None:
    check((ROOT / "CHANGELOG.md").read_text(), project_version())


def test_what_the_heading_says_after_the_version_is_returned() -> None:
    assert check(TEXT, "1.1.0") == "2026-01-02"
    assert check(TEXT, "0.9.0") == ""


@pytest.mark.parametrize("version", ["1.2.0", "1.0.0", "1.1", "1.1x0"])
def test_a_version_without_a_section_or_with_an_empty_one_is_refused(version: str) -> None:
    with pytest.raises(StepError, match=version):
        check(TEXT, version)
