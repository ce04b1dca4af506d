"""The kubectl plugin as krew installs it: an archive, and the manifest that names it by its digest."""

import hashlib
import textwrap
from collections.abc import Mapping
from typing import Final

import yaml

from hack.release.archives import Entry, packed
from hack.release.settings import Release

PROGRAM: Final = "kubectl-ddpjob"
"""What krew links into its folder of programs."""
LOCK: Final = "requirements.lock"
_FOLDER: Final = "hack/release/plugin"
_SOURCE: Final = f"{_FOLDER}/kubectl_ddpjob.py"
_LICENSE: Final = "LICENSE"
# What the plugin is started by needs fcntl and exec as Unix has them.
_SYSTEMS: Final = ("darwin", "linux")
_SHORT: Final = "Run and inspect PyTorch DDP trainings"
# The checker of krew's own index warns of longer lines in texts that `kubectl krew info` prints as they are.
_LINE: Final = 80
_DESCRIPTION: Final = (
    "Runs PyTorch DistributedDataParallel trainings as DDPJobs, follows them, merges the logs of their ranks, explains "
    "why one failed, finds what blocks one, and converts launch lines and scripts of PBS and Slurm."
)
_CAVEATS: Final = (
    "It is written in Python, and needs Python 3.11 or newer with its venv module on PATH. The first run creates a "
    "virtual environment in ~/.cache/ddpjob-plugin, and installs the packages there that requirements.lock of the "
    "plugin lists, by their hashes, from the package index that pip is configured with."
)


def plugin_archive(files: Mapping[str, Entry], wheel_name: str, wheel: bytes, release: Release) -> bytes:
    """The archive: the program that kubectl starts, the wheel, and the lock of what the wheel needs.

    Args:
        files: of the repository, by their paths.
        wheel_name: name of the wheel's file, from which pip reads its version.
        wheel: the wheel.
        release: what is released.
    """
    entries = {
        PROGRAM: Entry(files[_SOURCE].data, executable=True),
        LOCK: Entry(files[f"{_FOLDER}/{LOCK}"].data),
        _LICENSE: Entry(files[_LICENSE].data),
        wheel_name: Entry(wheel),
    }
    return packed(entries, release.epoch)


def archive_name(version: str) -> str:
    """Name of the archive's file."""
    return f"{PROGRAM}-{version}.tar.gz"


def plugin_manifest(archive: bytes, release: Release) -> str:
    """plugins/ddpjob.yaml of an index of krew; one archive serves all systems."""
    manifest = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "ddpjob"},
        "spec": {
            "version": f"v{release.version}",
            "homepage": release.url,
            "shortDescription": _SHORT,
            "description": _lines(_DESCRIPTION),
            "caveats": _lines(_CAVEATS),
            "platforms": [
                {
                    "selector": {"matchExpressions": [{"key": "os", "operator": "In", "values": list(_SYSTEMS)}]},
                    "uri": f"{release.url}/{archive_name(release.version)}",
                    "sha256": hashlib.sha256(archive).hexdigest(),
                    "bin": PROGRAM,
                }
            ],
        },
    }
    text: str = yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, width=120)
    return text


def _lines(text: str) -> str:
    return textwrap.fill(text, _LINE, break_long_words=False, break_on_hyphens=False) + "\n"


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as they are, for the people who review an index of krew."""


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _write_text)
