"""The package of the Helm chart, which `helm package` would make with the time of day in it."""

from collections.abc import Mapping
from typing import Final

from hack.generate.chart.templates import CHART
from hack.images.image import IMAGES
from hack.release.archives import Entry, packed
from hack.release.settings import Release

_NAME: Final = "ddpjob"
"""Folder in the package, which Helm wants to be the name of the chart."""
_LICENSE: Final = "LICENSE"


def chart_package(files: Mapping[str, Entry], release: Release) -> bytes:
    """The chart, with the operator's image of this release as default.

    Args:
        files: of the repository, by their paths.
        release: what is released.

    Raises:
        ValueError: the chart's defaults are not those of the tree.
    """
    prefix = f"{CHART}/"
    chart = {f"{_NAME}/{path.removeprefix(prefix)}": entry for path, entry in files.items() if path.startswith(prefix)}
    chart[f"{_NAME}/{_LICENSE}"] = files[_LICENSE]
    image, tag = IMAGES[0].name.split(":")
    replaced = {
        "values.yaml": {
            f"  repository: {image}\n": f"  repository: {release.operator_image}\n",
            f"  tag: {tag}\n": f"  tag: {release.version}\n",
        },
        "values.schema.json": {
            f'"default": "{image}"': f'"default": "{release.operator_image}"',
            f'"default": "{tag}"': f'"default": "{release.version}"',
        },
    }
    for name, pairs in replaced.items():
        path = f"{_NAME}/{name}"
        text = chart[path].data.decode()
        for old, new in pairs.items():
            if text.count(old) != 1:
                raise ValueError(f"{old!r} must occur once in {name} of the chart, and does {text.count(old)} times")
            text = text.replace(old, new)
        chart[path] = Entry(text.encode())
    return packed(chart, release.epoch)
