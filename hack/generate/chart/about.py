"""Chart.yaml: written by hand, except its versions, which are those of the project."""

import re

from hack.cache import ROOT
from hack.generate.chart.templates import CHART
from hack.project import project_version


def chart_file() -> str:
    """The file with the project's version as the chart's and as the operator's."""
    return with_versions((ROOT / CHART / "Chart.yaml").read_text(encoding="utf-8"), project_version())


def with_versions(text: str, version: str) -> str:
    """A text of Chart.yaml with other versions.

    Raises:
        ValueError: it does not have exactly one line for each of the two.
    """
    text, found = re.subn(r"^(version|appVersion): .*$", rf"\g<1>: {version}", text, flags=re.MULTILINE)
    if found != 2 or text.count("\nversion: ") != 1:  # noqa: PLR2004 - its own version, and the operator's
        raise ValueError("Chart.yaml must have one line that begins with `version:`, and one with `appVersion:`")
    return text
