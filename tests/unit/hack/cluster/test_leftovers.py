"""Folders in which others wrote, removed by a user who is not root."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.cluster.engine import Engine, Source
from hack.cluster.leftovers import remove_folder
from hack.console import StepError

NOBODY = 65534
# Does what an engine's daemon may do and its user may not.
ENGINE = """#!/bin/sh
for word; do
  case $word in --volume=*) parent=${word#--volume=} ;; esac
done
folder=${parent%:/parent}/${word#/parent/}
chmod -R u+w "$folder" && rm -r "$folder"
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of which a part cannot be removed without more rights, and a user who is not root."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "cluster"
        (folder / "shared").mkdir(parents=True)
        (folder / "shared/epoch").touch()
        (folder / "shared").chmod(0o500)
        root = os.geteuid() == 0
        if root:
            for path in (Path(home), folder, folder / "shared"):
                os.chown(path, NOBODY, NOBODY)
            os.seteuid(NOBODY)
        yield folder
        if root:
            os.seteuid(0)
        if folder.exists():
            (folder / "shared").chmod(0o700)


def test_what_others_wrote_is_removed_by_the_engine(folder: Path) -> None:
    program = folder.parent / "engine"
    program.write_text(ENGINE)
    program.chmod(0o755)
    remove_folder(Engine(str(program), Source.REGISTRY, "a test"), folder)
    assert not folder.exists()


def test_what_cannot_be_removed_is_named_with_the_command_that_does_it(folder: Path) -> None:
    with pytest.raises(StepError, match=f"sudo rm -rf {folder}"):
        remove_folder(Engine("false", Source.REGISTRY, "a test"), folder)
    assert (folder / "shared").is_dir()


def test_a_folder_that_is_not_there_needs_no_engine(tmp_path: Path) -> None:
    remove_folder(Engine("false", Source.REGISTRY, "a test"), tmp_path / "cluster")
