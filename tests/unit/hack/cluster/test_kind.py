from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.cache import built, hash_of
from hack.cluster import kind
from hack.cluster.engine import Engine, Source, choose_engine
from hack.cluster.kind import Cluster, configuration, global_ipv6, not_ready_nodes, stopped_nodes
from hack.cluster.shared_storage import released_volumes, shared_storage
from hack.console import StepError, run_step

CLUSTER = Cluster(Path("/cache/cluster/ddpjob"), Path("/cache/programs/1"))


def test_every_node_has_the_shared_folder_and_the_control_plane_an_audit_log() -> None:
    wanted = configuration(CLUSTER, "image", ip_family="dual")
    assert [node["role"] for node in wanted["nodes"]] == ["control-plane", "worker", "worker"]
    for node in wanted["nodes"]:
        assert {"hostPath": str(CLUSTER.shared), "containerPath": "/var/lib/ddpjob-shared"} in node["extraMounts"]
    server = yaml.safe_load(wanted["nodes"][0]["kubeadmConfigPatches"][0])["apiServer"]
    folder = str(Path(server["extraArgs"]["audit-log-path"]).parent)
    assert {"hostPath": str(CLUSTER.audit), "containerPath": folder} in wanted["nodes"][0]["extraMounts"]
    assert CLUSTER.environment["DDPJOB_AUDIT_LOG"].startswith(str(CLUSTER.audit))


@pytest.mark.parametrize(
    ("asked", "machine", "family"),
    [
        (None, True, "dual"),
        (None, False, "ipv4"),
        ("ipv4", True, "ipv4"),
        ("ipv4", False, "ipv4"),
        ("ipv6", True, "ipv6"),
        ("dual", True, "dual"),
        ("ipv6", False, None),
        ("dual", False, None),
        ("ipv5", True, None),
    ],
)
def test_pods_have_the_addresses_that_are_asked_for_or_that_the_machine_can_carry(
    monkeypatch: pytest.MonkeyPatch,
    asked: str | None,
    machine: bool,  # noqa: FBT001
    family: str | None,
) -> None:
    monkeypatch.setattr(kind, "has_ipv6", lambda: machine)
    if family is None:
        with pytest.raises(StepError, match=f"DDPJOB_IP_FAMILY={asked}: "):
            kind.ip_family(asked)
    else:
        found = kind.ip_family(asked)
        assert configuration(CLUSTER, "image", ip_family=found)["networking"]["ipFamily"] == found == family


def test_the_address_of_an_engines_own_bridge_does_not_count_as_ipv6_of_the_machine() -> None:
    bridge = (
        "3: podman1    inet6 fc00:f853:ccd:e793::1/64 scope global \\       valid_lft forever preferred_lft forever\n"
    )
    card = "2: eth0    inet6 2001:db8::2/64 scope global \\       valid_lft forever preferred_lft forever\n"
    assert global_ipv6(bridge, ["podman1"]) == []
    assert global_ipv6(bridge + card, ["podman1"]) == ["eth0"]
    assert global_ipv6("", []) == []


def test_shared_volumes_are_folders_of_their_own() -> None:
    volumes = [item for item in shared_storage() if item["kind"] == "PersistentVolume"]
    assert len({volume["spec"]["hostPath"]["path"] for volume in volumes}) == len(volumes) > 1
    assert all("ReadWriteMany" in volume["spec"]["accessModes"] for volume in volumes)


def test_a_volume_is_offered_again_once_its_claim_is_gone() -> None:
    def volume(name: str, phase: str, storage_class: str = "ddpjob-shared") -> dict[str, Any]:
        return {"metadata": {"name": name}, "spec": {"storageClassName": storage_class}, "status": {"phase": phase}}

    volumes = [
        volume("a", "Bound"),
        volume("b", "Released"),
        volume("c", "Released", "standard"),
        volume("d", "Available"),
    ]
    assert released_volumes({"items": volumes}) == ["b"]


def node(name: str, *conditions: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"conditions": list(conditions)} if conditions else {}}


def test_a_node_that_says_nothing_is_not_ready() -> None:
    nodes = [
        node("ready", {"type": "Ready", "status": "True"}),
        node("silent"),
        node("unknown", {"type": "Ready", "status": "Unknown"}),
    ]
    assert not_ready_nodes({"items": nodes}) == ["silent", "unknown"]


def test_a_stopped_node_is_seen_without_asking_the_api_server() -> None:
    assert stopped_nodes("a Up 3 minutes ago\nb Exited (137) 2 seconds ago\nc Created\n") == ["b", "c"]
    assert stopped_nodes("") == []


def test_what_is_built_is_whole_or_not_there(tmp_path: Path) -> None:
    def broken(work: Path) -> None:
        (work / "half").touch()
        raise StepError("no space left")

    with pytest.raises(StepError):
        built(tmp_path / "programs" / "1", broken)
    assert list((tmp_path / "programs").iterdir()) == []


def test_what_is_built_is_built_once_and_the_last_one_is_kept(tmp_path: Path) -> None:
    calls: list[str] = []
    for name in ("1", "1", "2", "3"):
        built(tmp_path / name, lambda _, name=name: calls.append(name))  # type: ignore[misc]
    assert calls == ["1", "2", "3"]
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["2", "3"]


def test_a_hash_knows_names_contents_and_modes(tmp_path: Path) -> None:
    def digest() -> str:
        return hash_of([tmp_path])

    file = tmp_path / "a"
    file.write_text("1")
    digests = [digest()]
    file.write_text("2")
    digests.append(digest())
    file.chmod(0o755)
    digests.append(digest())
    file.rename(tmp_path / "b")
    digests.append(digest())
    assert len(set(digests)) == len(digests)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__/b.pyc").touch()
    assert digest() == digests[-1]


def test_a_failed_step_says_which_and_shows_its_output(tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"(?s)node image failed.*exit code 3.*no space left.*free some"):
        run_step("node image", ["sh", "-c", "echo no space left; exit 3"], tmp_path / "log", hint="free some")


def test_a_program_that_is_not_there_is_a_failed_step(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="mmdebstrap-nowhere"):
        run_step("base image", ["mmdebstrap-nowhere"], tmp_path / "log")


def test_podman_and_docker_get_a_network_of_our_own() -> None:
    for program in ("docker", "podman"):
        variables = Engine(program, Source.REGISTRY, "").environment
        assert variables["KIND_EXPERIMENTAL_PROVIDER"] == program
        assert variables[f"KIND_EXPERIMENTAL_{program.upper()}_NETWORK"] == "ddpjob"


def test_a_forced_source_is_one_that_exists(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DDPJOB_CLUSTER", "buld")
    with pytest.raises(StepError, match="registry, build or unset"):
        choose_engine(tmp_path / "log")
