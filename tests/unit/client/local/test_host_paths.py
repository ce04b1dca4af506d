"""A job on this machine has the folders of the machine that its user has named, and no others."""

from pathlib import Path
from typing import Any

import pytest
from local_jobs import manifest_of

from ddpjob.local.errors import LocalError


def template_of(path: object) -> dict[str, Any]:
    return {"spec": {"volumes": [{"name": "scratch", "emptyDir": {}}, {"name": "data", "hostPath": {"path": path}}]}}


def test_a_host_path_that_the_user_has_not_named_is_refused_with_what_allows_it(tmp_path: Path) -> None:
    folder = tmp_path / "my data"
    folder.mkdir()
    with pytest.raises(LocalError) as refusal:
        manifest_of(template=template_of(str(folder)), host_paths=[tmp_path / "other"])
    assert str(refusal.value) == (
        f"spec.template.spec.volumes: data is {folder} of this machine itself, which this job could read and change: "
        f"to let it, run it with --allow-host-path '{folder}'; else use an emptyDir or a persistentVolumeClaim"
    )


def test_a_folder_that_the_user_has_named_is_allowed_with_all_that_is_below_it(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "below/deep"):
        manifest_of(template=template_of(str(path)), host_paths=[Path("/nowhere"), tmp_path])


@pytest.mark.parametrize("path", ["{allowed}/../other", "{allowed}-more", "{allowed}/link/deep", "/"])
def test_neither_dots_nor_links_nor_a_longer_name_lead_out_of_it(tmp_path: Path, path: str) -> None:
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (tmp_path / "other").mkdir()
    (allowed / "link").symlink_to(tmp_path / "other")
    with pytest.raises(LocalError, match=r"volumes: data is .* of this machine itself"):
        manifest_of(template=template_of(path.format(allowed=allowed)), host_paths=[allowed])


def test_a_link_that_the_user_has_named_stands_for_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    manifest_of(template=template_of(str(tmp_path / "data/x")), host_paths=[tmp_path / "data"])


def test_a_host_path_without_a_path_names_the_field(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"volumes: data has no hostPath\.path: name a folder"):
        manifest_of(template=template_of(None), host_paths=[tmp_path])
