"""Base images by digest, and a snapshot of Debian's archive."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from hack.cache import ROOT
from hack.console import StepError
from hack.images.bases import (
    LOCK,
    Lock,
    base_names,
    by_digest,
    checked,
    needs_snapshot,
    pinned,
    read_lock,
    snapshot_script,
    unpinned,
    written,
)
from hack.images.dockerfile import needs
from hack.images.image import ALL_IMAGES, Image

DEBIAN = "docker.io/library/debian:trixie-slim"
DIGEST = "sha256:" + "ab" * 32
TIME = "20261101T000000Z"
DOCKERFILE = """\
# FROM docker.io/library/debian:trixie-slim in a comment
FROM --platform=linux/amd64 docker.io/library/debian:trixie-slim AS packages
RUN true
FROM packages AS more
COPY --from=docker.io/library/debian:trixie-slim /etc/os-release /
RUN --mount=type=bind,from=docker.io/library/debian:trixie-slim,target=/base true
FROM docker.io/library/debian:trixie
"""
SOURCES = """\
Types: deb
# http://snapshot.example/archive/debian/20260921T000000Z
URIs: http://archive.example/debian
Suites: trixie trixie-updates

Types: deb
# http://snapshot.example/archive/debian-security/20260921T000000Z
URIs: http://archive.example/debian-security
Suites: trixie-security
"""


def test_a_pinned_base_is_named_by_its_digest_wherever_a_dockerfile_takes_something_of_it() -> None:
    assert pinned(DOCKERFILE, Lock({DEBIAN: DIGEST})).splitlines() == [
        "# FROM docker.io/library/debian:trixie-slim in a comment",
        f"FROM --platform=linux/amd64 docker.io/library/debian@{DIGEST} AS packages",
        "RUN true",
        "FROM packages AS more",
        f"COPY --from=docker.io/library/debian@{DIGEST} /etc/os-release /",
        f"RUN --mount=type=bind,from=docker.io/library/debian@{DIGEST},target=/base true",
        # Another tag, which is not in the lock.
        "FROM docker.io/library/debian:trixie",
    ]


def test_a_snapshot_is_set_up_at_the_beginning_of_every_stage_on_debians_image_and_of_no_other() -> None:
    text = "FROM docker.io/library/debian:trixie-slim AS one\nFROM one\nFROM registry.example:5000/python:3"
    assert pinned(text, Lock({}, TIME)).splitlines() == [
        "FROM docker.io/library/debian:trixie-slim AS one",
        f"RUN {snapshot_script(TIME)}",
        "FROM one",
        "FROM registry.example:5000/python:3",
    ]
    assert pinned(f"FROM {DEBIAN}", Lock({}, TIME)).splitlines()[0] == f"FROM {DEBIAN}"


@pytest.mark.parametrize("image", ALL_IMAGES, ids=lambda image: image.name)
def test_an_empty_lock_changes_no_dockerfile_and_a_full_one_every_base(image: Image) -> None:
    text = (ROOT / image.dockerfile).read_text()
    assert pinned(text, Lock()) == text
    full = Lock(dict.fromkeys(base_names(), DIGEST), TIME)
    again = pinned(text, full)
    assert all(f"@{DIGEST}" in name for name in needs(again).base_images)
    assert needs(again).files == needs(text).files


def test_every_base_of_every_image_is_pinned() -> None:
    names = base_names()
    used = {name for each in ALL_IMAGES for name in needs((ROOT / each.dockerfile).read_text()).base_images}
    assert used <= set(names)
    assert set(needs((ROOT / "images/trainer/gpu.Dockerfile").read_text()).base_images) <= set(names)
    assert unpinned(names, Lock()) == sorted(names)
    assert unpinned(names, Lock(dict.fromkeys(names, DIGEST))) == []


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        (DEBIAN, f"docker.io/library/debian@{DIGEST}"),
        ("127.0.0.1:5000/debian:trixie", f"127.0.0.1:5000/debian@{DIGEST}"),
        ("127.0.0.1:5000/debian", f"127.0.0.1:5000/debian@{DIGEST}"),
    ],
)
def test_the_digest_takes_the_place_of_the_tag_and_not_of_a_port(name: str, wanted: str) -> None:
    assert by_digest(name, Lock({name: DIGEST})) == wanted
    assert by_digest(name, Lock()) == name
    assert needs_snapshot(name, Lock({}, TIME))
    assert not needs_snapshot(name, Lock())


def test_the_committed_lock_is_as_the_command_writes_it(tmp_path: Path) -> None:
    assert LOCK.read_text() == written(read_lock())
    path = tmp_path / "lock"
    full = Lock({DEBIAN: DIGEST}, TIME)
    path.write_text(written(full))
    assert read_lock(path) == full


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "must have the fields bases and snapshot"),
        ("base: {}", "must have the fields bases and snapshot"),
        ("bases: []\nsnapshot: x", "snapshot is 'x'"),
        ("bases: [a]", "bases must map names"),
        ("bases: {a: latest}", "bases.a is 'latest'"),
        ("bases: {1: 2}", "bases.1 is 2"),
        (f"bases: {{a: {DIGEST}0}}", "bases.a is"),
        ("snapshot: 2026-11-01", "snapshot is datetime"),
        ("snapshot: '20261101'", "snapshot is '20261101'"),
        (f"snapshot: '{TIME}; true'", "snapshot is"),
    ],
)
def test_a_lock_that_is_not_one_is_refused_by_the_name_of_the_field(text: str, message: str) -> None:
    with pytest.raises(StepError, match=message) as caught:
        checked(yaml.safe_load(text), "the lock")
    assert str(caught.value).startswith("the lock: ")


def test_a_file_that_is_not_yaml_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "bases.lock.yaml"
    path.write_text("bases: {")
    with pytest.raises(StepError, match=r"bases\.lock\.yaml cannot be read"):
        read_lock(path)
    with pytest.raises(StepError, match="cannot be read"):
        read_lock(tmp_path / "nothing")


def run_snapshot_script(folder: Path, sources: str) -> subprocess.CompletedProcess[str]:
    (folder / "debian.sources").write_text(sources)
    script = snapshot_script(TIME, str(folder / "debian.sources"), str(folder / "80snapshot"))
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)


def test_all_archives_of_apt_become_the_snapshot(tmp_path: Path) -> None:
    done = run_snapshot_script(tmp_path, SOURCES)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "debian.sources").read_text() == (
        "Types: deb\n"
        f"URIs: http://snapshot.example/archive/debian/{TIME}\n"
        "Suites: trixie trixie-updates\n"
        "\n"
        "Types: deb\n"
        f"URIs: http://snapshot.example/archive/debian-security/{TIME}\n"
        "Suites: trixie-security\n"
    )
    assert (tmp_path / "80snapshot").read_text() == 'Acquire::Check-Valid-Until "false";\n'


@pytest.mark.parametrize(
    "sources",
    [
        "Types: deb\nURIs: http://archive.example/debian\n",
        SOURCES.replace("# http://snapshot.example/archive/debian-security/20260921T000000Z\n", ""),
        "",
    ],
    ids=["no archive", "one archive", "nothing"],
)
def test_a_build_fails_where_an_archive_has_no_snapshot(tmp_path: Path, sources: str) -> None:
    done = run_snapshot_script(tmp_path, sources)
    assert done.returncode != 0
    assert "no snapshot is named in" in done.stderr


def test_the_command_prints_a_dockerfile_as_the_lock_pins_it(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.write_text(written(Lock({DEBIAN: DIGEST})))
    command = [sys.executable, "-m", "hack.images.pin", "--lock", str(lock), "--print", "images/trainer/gpu.Dockerfile"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"FROM docker.io/library/debian@{DIGEST}\n" in done.stdout
