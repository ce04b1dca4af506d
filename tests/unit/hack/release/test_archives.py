"""The bytes of an archive follow from what is in it."""

import io
import tarfile

import pytest

from hack.release.archives import Entry, entries_of, packed

FILES = {"a/program": Entry(b"#!/bin/sh\n", executable=True), "a/b/text": Entry(b"text"), "z": Entry(b"")}
EPOCH = 1_700_000_000


def members(archive: bytes) -> list[tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return opened.getmembers()


def test_the_order_in_which_files_are_found_changes_nothing() -> None:
    assert packed(FILES, EPOCH) == packed(dict(reversed(FILES.items())), EPOCH)


def test_members_are_sorted_and_have_one_time_one_owner_and_one_of_two_modes() -> None:
    found = members(packed(FILES, EPOCH))
    assert [each.name for each in found] == ["a/b/text", "a/program", "z"]
    assert {each.mtime for each in found} == {EPOCH}
    assert {(each.uid, each.gid, each.uname, each.gname) for each in found} == {(0, 0, "root", "root")}
    assert [each.mode for each in found] == [0o644, 0o755, 0o644]


def test_the_header_of_gzip_has_the_given_time_and_no_name() -> None:
    header = packed(FILES, EPOCH)[:10]
    assert int.from_bytes(header[4:8], "little") == EPOCH
    assert header[3] == 0


def test_what_is_packed_is_read_again_as_it_was() -> None:
    assert entries_of(packed(FILES, EPOCH)) == FILES


def test_an_archive_with_a_link_is_refused_by_its_name() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        link = tarfile.TarInfo("a/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    with pytest.raises(ValueError, match="a/link"):
        entries_of(buffer.getvalue())
