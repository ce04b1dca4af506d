"""The kubectl plugin as krew installs it."""

import ast
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.cache import ROOT
from hack.release.archives import Entry, entries_of
from hack.release.krew import LOCK, PROGRAM, archive_name, plugin_archive, plugin_manifest
from hack.release.plugin import kubectl_ddpjob
from hack.release.settings import Release
from hack.release.sources import tracked_files

RELEASE = Release("1.2.3", 1_700_000_000, registry="", url="https://releases.example/v1.2.3")
WHEEL = "ddpjob-1.2.3-py3-none-any.whl"
SOURCE = Path(kubectl_ddpjob.__file__)
MOST_CHARACTERS_OF_A_SUMMARY = 50
"""What krew's reviewers ask for."""
MOST_CHARACTERS_OF_A_LINE = 80
"""What the checker of krew's index warns of (cmd/validate-krew-manifest of krew 0.4)."""


@pytest.fixture(scope="module")
def archive() -> bytes:
    return plugin_archive(tracked_files(ROOT), WHEEL, b"wheel", RELEASE)


@pytest.fixture(scope="module")
def manifest(archive: bytes) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(plugin_manifest(archive, RELEASE))
    return found


def test_the_archive_has_the_program_the_wheel_its_lock_and_the_license(archive: bytes) -> None:
    found = entries_of(archive)
    assert set(found) == {PROGRAM, WHEEL, LOCK, "LICENSE"}
    assert found[PROGRAM] == Entry(SOURCE.read_bytes(), executable=True)
    assert found[WHEEL].data == b"wheel"


def test_the_manifest_names_the_archive_by_its_digest(archive: bytes, manifest: dict[str, Any]) -> None:
    (platform,) = manifest["spec"]["platforms"]
    assert platform["sha256"] == hashlib.sha256(archive).hexdigest()
    assert platform["uri"] == f"{RELEASE.url}/{archive_name('1.2.3')}"
    assert platform["bin"] in entries_of(archive)


def test_the_manifest_is_what_krew_asks_of_one(manifest: dict[str, Any]) -> None:
    assert (manifest["apiVersion"], manifest["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert manifest["metadata"]["name"] == "ddpjob"
    assert manifest["spec"]["version"] == "v1.2.3"
    assert len(manifest["spec"]["shortDescription"]) <= MOST_CHARACTERS_OF_A_SUMMARY


def test_krew_reads_every_field_of_the_manifest(manifest: dict[str, Any]) -> None:
    # It ignores what it does not know (pkg/index/types.go): a field with a mistake in its name would have no effect.
    assert set(manifest) == {"apiVersion", "kind", "metadata", "spec"}
    assert set(manifest["spec"]) == {
        "version",
        "homepage",
        "shortDescription",
        "description",
        "caveats",
        "platforms",
    }
    (platform,) = manifest["spec"]["platforms"]
    # Without `files` it takes all of the archive.
    assert set(platform) == {"selector", "uri", "sha256", "bin"}


def test_the_manifest_passes_the_checks_that_krew_makes_before_it_installs(manifest: dict[str, Any]) -> None:
    # internal/index/validation/validate.go of krew 0.4.
    spec = manifest["spec"]
    assert re.fullmatch(r"[\w-]+", manifest["metadata"]["name"])
    assert re.fullmatch(r"v\d+\.\d+\.\d+", spec["version"])
    assert spec["shortDescription"]
    assert "\n" not in spec["shortDescription"]
    (platform,) = spec["platforms"]
    assert re.fullmatch(r"[a-f0-9]{64}", platform["sha256"])
    assert platform["uri"].startswith("https://")
    (expression,) = platform["selector"]["matchExpressions"]
    assert (expression["key"], expression["operator"]) == ("os", "In")
    assert expression["values"] == ["darwin", "linux"]


def test_no_line_of_the_texts_is_longer_than_the_checker_of_krews_index_wants(manifest: dict[str, Any]) -> None:
    for field in ("description", "caveats"):
        lines = manifest["spec"][field].splitlines()
        assert len(lines) > 1
        assert max(map(len, lines)) <= MOST_CHARACTERS_OF_A_LINE


def test_the_texts_of_the_manifest_are_read_as_they_are_printed(archive: bytes, manifest: dict[str, Any]) -> None:
    text = plugin_manifest(archive, RELEASE)
    for field in ("description", "caveats"):
        assert f"  {field}: |\n" in text
        for line in manifest["spec"][field].splitlines():
            assert f"    {line}\n" in text


def test_krew_unpacks_every_entry_of_the_archive(archive: bytes) -> None:
    # It recognizes gzip by its first bytes, and refuses all but files and folders, absolute paths, and every name with
    # two dots in a row (internal/download/downloader.go of krew 0.4).
    assert archive.startswith(b"\x1f\x8b\x08")
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        for member in opened:
            assert member.isreg() or member.isdir()
            assert ".." not in member.name
            assert not member.name.startswith(("/", "\\"))


def test_a_python_that_is_too_old_for_ddpjob_can_read_the_program() -> None:
    ast.parse(SOURCE.read_text(), feature_version=(3, 6))


def test_the_program_wants_the_python_that_the_wheel_wants() -> None:
    wanted = ".".join(map(str, kubectl_ddpjob.LEAST))
    assert f'requires-python = ">={wanted}"' in (ROOT / "pyproject.toml").read_text()


def run(program: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(program), *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def of_the_future(tmp_path: Path) -> Path:
    """The program, for which every Python of today is too old."""
    path = tmp_path / PROGRAM
    path.write_text(SOURCE.read_text().replace("LEAST = (3, 11)", "LEAST = (9, 1)"))
    return path


def test_without_a_python_that_is_new_enough_the_program_says_what_it_needs(
    of_the_future: Path, tmp_path: Path
) -> None:
    done = run(of_the_future, PATH=str(tmp_path))
    assert done.returncode == kubectl_ddpjob.USAGE
    assert "needs Python 9.1 or newer" in done.stderr


def test_of_the_pythons_on_the_path_the_newest_is_used(of_the_future: Path, tmp_path: Path) -> None:
    for name in ("python3.12", "python3.13"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
        (tmp_path / name).chmod(0o755)
    done = run(of_the_future, "why", "a job", PATH=str(tmp_path))
    assert done.stdout == f"python3.13 {of_the_future} why a job\n"


@pytest.fixture
def plugin(archive: bytes, tmp_path: Path) -> Path:
    for name, entry in entries_of(archive).items():
        (tmp_path / name).write_bytes(entry.data)
    return tmp_path / PROGRAM


def made_environment(plugin: Path, cache: Path) -> Path:
    """What the first run leaves, with a program that prints its arguments."""
    key = kubectl_ddpjob.key(plugin.with_name(WHEEL), plugin.with_name(LOCK))
    folder = cache / "ddpjob-plugin" / key
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").symlink_to(sys.executable)
    (folder / "bin" / PROGRAM).write_text('#!/bin/sh\necho installed "$@"\n')
    (folder / "bin" / PROGRAM).chmod(0o755)
    (folder / kubectl_ddpjob.COMPLETE).touch()
    return folder


def test_what_the_first_run_installed_is_run_by_the_next_one(plugin: Path, tmp_path: Path) -> None:
    made_environment(plugin, tmp_path / "cache")
    done = run(plugin, "logs", "a job", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "installed logs a job\n", "")


def test_an_environment_is_not_used_for_another_wheel_lock_or_after_an_interruption(
    plugin: Path, tmp_path: Path
) -> None:
    folder = made_environment(plugin, tmp_path / "cache")
    wheel, lock = plugin.with_name(WHEEL), plugin.with_name(LOCK)
    assert kubectl_ddpjob.is_complete(folder)
    (folder / kubectl_ddpjob.COMPLETE).unlink()
    assert not kubectl_ddpjob.is_complete(folder)
    before = kubectl_ddpjob.key(wheel, lock)
    wheel.write_bytes(b"other")
    after = kubectl_ddpjob.key(wheel, lock)
    lock.write_text("other")
    assert len({before, after, kubectl_ddpjob.key(wheel, lock)}) == 3


def test_an_environment_whose_python_is_gone_is_made_again(plugin: Path, tmp_path: Path) -> None:
    folder = made_environment(plugin, tmp_path / "cache")
    (folder / "bin/python").unlink()
    (folder / "bin/python").symlink_to(tmp_path / "removed")
    assert not kubectl_ddpjob.is_complete(folder)
