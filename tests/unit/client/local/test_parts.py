"""The parts of a run without a cluster: the file, the volumes, the process that a pod comes to, what is kept."""

import io
import json
import socket
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from ddpjob.local.advice import LocalAdvice
from ddpjob.local.console import Console, without_effect
from ddpjob.local.errors import LocalError
from ddpjob.local.manifest import LocalManifest, local_manifest
from ddpjob.local.network import Network, Ports, node_address
from ddpjob.local.process import Machine, process_of, trainer_container
from ddpjob.local.records import Records, default_home, to_go_on, told_of
from ddpjob.local.volumes import Mount, Places, here, make_folders, mounts_of
from ddpjob.manifests.documents import Document, read_documents
from ddpjob_core.api.errors import UsageProblem
from ddpjob_core.api.status import DDPJobStatus
from ddpjob_core.children.pod import build_pod
from ddpjob_core.observations.advice import ClusterAdvice
from ddpjob_core.observations.observe import job_record
from ddpjob_core.wire.progress import PollTarget

NETWORK = Network(29500, 9401, 2, 9401)


def manifest_of(name: str = "digits", *others: dict[str, Any], **spec: Any) -> LocalManifest:
    job = {
        "apiVersion": "ddpjob.dev/v1alpha1",
        "kind": "DDPJob",
        "metadata": {"name": name},
        "spec": {"nodes": 2, "procsPerNode": 2, "trainer": {"image": "i", "script": "train.py"}, **spec},
    }
    return local_manifest(read_documents(yaml.safe_dump_all([*others, job]), "job.yaml"))


def machine(folder: Path, gpus: tuple[str, ...] = ()) -> Machine:
    environment = {"PATH": "/bin", "HOME": "/home/me", "RANK": "7", "PET_NNODES": "9"}
    return Machine("/venv/bin/python", Path("/run/launcher.pyz"), environment, folder, gpus, "lo")


def start(manifest: LocalManifest, folder: Path, ordinal: int = 0, gpus: tuple[str, ...] = ()) -> Any:
    job = job_record({**manifest.job, "metadata": {**manifest.job["metadata"], "uid": "u1"}})
    assert job is not None
    pod = build_pod(job, manifest.spec, 0, ordinal)
    pod["metadata"]["uid"] = "p1"
    mounts = mounts_of(pod, trainer_container(pod), Places(folder / "claims", folder / "pod"), manifest.config_maps)
    return process_of(
        pod,
        ordinal,
        network=NETWORK,
        mounts=mounts,
        machine=machine(folder, gpus),
        termination_log=folder / "log",
        config_maps=manifest.config_maps,
    )


def test_a_wrong_job_is_refused_with_the_line_and_the_field() -> None:
    with pytest.raises(UsageProblem, match=r"job.yaml:\d+: spec.nodes: input should be greater than or equal to 1"):
        manifest_of(nodes=0)


@pytest.mark.parametrize("namespace", ["../../evil", "/tmp", "a/b", "A", "", "a" * 64, "a\n"])
@pytest.mark.parametrize("option", [True, False])
def test_a_namespace_that_is_no_label_names_no_folder(namespace: str, *, option: bool) -> None:
    job = {**manifest_of().job}
    job["metadata"] = {"name": "digits", **({} if option else {"namespace": namespace})}
    with pytest.raises(UsageProblem, match=r"namespace.* must be a DNS-1123 label"):
        local_manifest([Document("job.yaml", job)], namespace if option else None)


def test_mpirun_runs_on_one_node_of_a_machine_and_says_how_to_have_as_many_processes() -> None:
    with pytest.raises(
        LocalError, match=r"spec\.nodes: mpirun reaches other nodes by ssh.*nodes: 1 .*procsPerNode: 6 here"
    ):
        manifest_of(nodes=3, procsPerNode=2, launcher="mpirun")
    assert manifest_of(nodes=1, procsPerNode=6, launcher="mpirun").spec.procs_per_node == 6


def test_a_namespace_of_the_file_counts_before_the_option() -> None:
    job = {**manifest_of().job, "metadata": {"name": "digits", "namespace": "theirs"}}
    assert local_manifest([Document("job.yaml", job)], "mine").namespace == "theirs"
    assert manifest_of().namespace == "default"


def test_a_job_is_the_same_once_it_was_kept_whatever_yaml_makes_of_its_values() -> None:
    annotations = {"since": date(2026, 1, 2), 5: "five"}
    job = manifest_of(template={"metadata": {"annotations": annotations}}).job
    assert json.loads(json.dumps(job)) == job


def test_every_node_has_ports_of_its_own_and_addresses_that_sort_as_the_ordinals() -> None:
    assert [NETWORK.node_metrics_port(ordinal) for ordinal in range(3)] == [9401, 9403, 9405]
    assert NETWORK.locate(PollTarget(0, "127.0.0.1", 9402, rank=3, ordinal=1)) == ("127.0.0.1", 9404)
    addresses = [node_address(ordinal) for ordinal in range(12)]
    assert sorted(addresses) == addresses
    assert addresses[0] == "127.0.0.1"


def test_ports_in_use_are_passed_over(tmp_path: Path) -> None:
    ports = Ports(tmp_path)
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        network = ports.network(rendezvous_port=port, metrics_port=port, nodes=2, processes=2)
    assert network.rendezvous_port > port
    assert network.metrics_port > port
    assert not network.metrics_port <= network.rendezvous_port < network.metrics_port + 4
    with pytest.raises(OSError, match="no 9 ports"):
        ports.network(rendezvous_port=port, metrics_port=65530, nodes=9, processes=1)


def test_ports_are_held_until_they_are_released(tmp_path: Path) -> None:
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
    asked = {"rendezvous_port": port, "metrics_port": port + 1, "nodes": 1, "processes": 2}
    one, other = Ports(tmp_path), Ports(tmp_path)
    network = one.network(**asked)
    assert one.are_free()
    assert other.network(**asked).rendezvous_port >= network.metrics_port + 2
    one.release()
    other.release()
    assert other.network(**asked) == network
    other.release()


def test_ports_are_not_held_in_somebody_else_s_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(OSError, match="belongs to another user: TMPDIR names another place"):
        Ports(tmp_path).network(rendezvous_port=29500, metrics_port=9401, nodes=1, processes=1)


def test_a_pod_becomes_the_launcher_with_addresses_of_this_machine(tmp_path: Path) -> None:
    process = start(manifest_of(trainer={"image": "i", "script": "train.py", "args": ["50"]}), tmp_path, ordinal=1)
    assert process.arguments == ("/venv/bin/python", "/run/launcher.pyz", "50")
    assert process.folder == tmp_path
    environment = process.environment
    assert environment["DDPJOB_RENDEZVOUS_HOST"] == "127.0.0.1"
    assert environment["PET_RDZV_ENDPOINT"] == "127.0.0.1:29500"
    assert environment["DDPJOB_METRICS_PORT"] == "9403"
    assert environment["PET_NNODES"] == "2"
    assert environment["HOME"] == "/home/me"
    assert environment["DDPJOB_LOCAL"] == "1"
    # What this process was itself launched with is not its programs' business.
    assert "RANK" not in environment
    assert "PET_MASTER_ADDR" not in environment


def test_a_static_rendezvous_is_at_this_machine_s_address(tmp_path: Path) -> None:
    environment = start(manifest_of(rendezvous={"backend": "static"}), tmp_path, ordinal=1).environment
    assert (environment["PET_MASTER_ADDR"], environment["PET_NODE_RANK"]) == ("127.0.0.1", "1")
    assert "PET_RDZV_ENDPOINT" not in environment


def test_paths_below_a_mount_are_those_of_the_folder_that_stands_for_it(tmp_path: Path) -> None:
    manifest = manifest_of(
        "digits",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "code"}, "data": {"main.py": "print(1)"}},
        trainer={
            "image": "i",
            "script": "/code/main.py",
            "args": ["--data=/data/x", "/database", "--out", "/data"],
            "env": [{"name": "WHERE", "value": "/data/$(DDPJOB_NODE_RANK)/$$(X)/$(Y)"}],
            "volumeMounts": [{"name": "code", "mountPath": "/code"}, {"name": "data", "mountPath": "/data/"}],
        },
        template={
            "spec": {
                "volumes": [
                    {"name": "code", "configMap": {"name": "code"}},
                    {"name": "data", "hostPath": {"path": "/srv"}},
                ]
            }
        },
        checkpoint={"claimName": "shared"},
    )
    process = start(manifest, tmp_path)
    assert process.environment["DDPJOB_PROGRAM"] == str(tmp_path / "pod/volumes/code/main.py")
    assert process.arguments[2:] == ("--data=/srv/x", "/database", "--out", "/srv")
    assert process.environment["WHERE"] == "/srv/0/$(X)/$(Y)"
    assert process.environment["DDPJOB_CHECKPOINT_PATH"] == str(tmp_path / "claims/shared/u1")
    make_folders([Mount("/code", tmp_path / "pod/volumes/code", files=manifest.config_maps["code"])])
    assert (tmp_path / "pod/volumes/code/main.py").read_text() == "print(1)"


def test_the_deepest_mount_holds_a_path() -> None:
    mounts = [Mount("/a", Path("/one")), Mount("/a/b", Path("/two"))]
    assert here("/a/b/c", mounts) == "/two/c"
    assert here("/a/bc", mounts) == "/one/bc"
    assert here("x=/a/b", mounts) == "x=/a/b"


def made(tmp_path: Path, volume: dict[str, Any], mount: dict[str, Any]) -> Path:
    """The path here of /v, where a volume is mounted, once the folders are made."""
    data = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "A", "b": "B"}}
    trainer = {"image": "i", "script": "/v", "volumeMounts": [{"name": "v", "mountPath": "/v", **mount}]}
    template = {"spec": {"volumes": [{"name": "v", **volume}]}}
    manifest = manifest_of("digits", data, trainer=trainer, template=template)
    job = job_record({**manifest.job, "metadata": {**manifest.job["metadata"], "uid": "u1"}})
    assert job is not None
    pod = build_pod(job, manifest.spec, 0, 0)
    mounts = mounts_of(pod, trainer_container(pod), Places(tmp_path / "claims", tmp_path / "pod"), manifest.config_maps)
    make_folders(mounts)
    return Path(here("/v", mounts))


def test_the_items_of_a_config_map_are_its_only_files_at_the_paths_they_name(tmp_path: Path) -> None:
    items = [{"key": "a", "path": "deep/x.py"}]
    folder = made(tmp_path, {"configMap": {"name": "c", "items": items}}, {})
    assert [file.relative_to(folder) for file in folder.rglob("*") if file.is_file()] == [Path("deep/x.py")]
    assert (folder / "deep/x.py").read_text() == "A"


def test_a_sub_path_may_be_a_file_of_a_config_map_and_else_is_a_folder_of_the_volume(tmp_path: Path) -> None:
    assert made(tmp_path, {"configMap": {"name": "c"}}, {"subPath": "b"}).read_text() == "B"
    assert made(tmp_path, {"persistentVolumeClaim": {"claimName": "d"}}, {"subPath": "e"}) == tmp_path / "claims/d/e"
    assert (tmp_path / "claims/d/e").is_dir()


def test_a_host_path_may_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("F")
    assert made(tmp_path, {"hostPath": {"path": str(tmp_path / "file")}}, {}).read_text() == "F"


def test_an_optional_config_map_that_is_not_given_is_an_empty_folder(tmp_path: Path) -> None:
    assert list(made(tmp_path, {"configMap": {"name": "none", "optional": True}}, {}).iterdir()) == []


@pytest.mark.parametrize(
    ("volume", "mount", "told"),
    [
        ({"configMap": {"name": "c", "items": [{"key": "z", "path": "z"}]}}, {}, "the ConfigMap c has no key z"),
        (
            {"configMap": {"name": "c", "items": [{"key": "a", "path": "../../a"}]}},
            {},
            r"\.\./\.\./a leaves the volume",
        ),
        ({"emptyDir": {}}, {"subPath": "../../a"}, r"\.\./\.\./a leaves the volume"),
        ({"persistentVolumeClaim": {"claimName": "../x"}}, {}, r"\.\./x is no name of a claim"),
    ],
)
def test_a_volume_stays_in_its_folder(tmp_path: Path, volume: dict[str, Any], mount: dict[str, Any], told: str) -> None:
    with pytest.raises(LocalError, match=told):
        made(tmp_path, volume, mount)


def test_a_working_folder_below_a_mount_need_not_be_there_before(tmp_path: Path) -> None:
    trainer = {
        "image": "i",
        "script": "a",
        "workingDir": "/v/deep",
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    }
    template = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
    assert start(manifest_of(trainer=trainer, template=template), tmp_path).folder == tmp_path / "pod/volumes/v/deep"


@pytest.mark.parametrize(
    ("trainer", "template", "told"),
    [
        ({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, {}, "there is no volume v"),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
            {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]},
            "a volume of the kind secret needs a cluster",
        ),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
            {"volumes": [{"name": "v", "configMap": {"name": "c"}}]},
            "there is no ConfigMap c without a cluster: give it in the same file",
        ),
        ({"envFrom": [{"secretRef": {"name": "s"}}]}, {}, "spec.trainer.envFrom: s is kept in a cluster"),
        (
            {"env": [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
            {},
            "spec.trainer.env: the value of T is kept in a cluster",
        ),
        ({"workingDir": "/nowhere"}, {}, "spec.trainer.workingDir: /nowhere is no folder of this machine"),
        ({"resources": {"limits": {"nvidia.com/gpu": 2}}}, {}, "asks for 2 GPUs of its own, and this machine has 1"),
    ],
)
def test_what_needs_a_cluster_is_named_with_its_field(
    tmp_path: Path, trainer: dict[str, Any], template: dict[str, Any], told: str
) -> None:
    manifest = manifest_of(trainer={"image": "i", "script": "a", **trainer}, template={"spec": template})
    with pytest.raises(LocalError, match=told):
        start(manifest, tmp_path, gpus=("0",))


def test_optional_sources_may_be_missing_and_given_ones_are_taken(tmp_path: Path) -> None:
    trainer = {
        "image": "i",
        "script": "a",
        "envFrom": [{"configMapRef": {"name": "c"}, "prefix": "P_"}, {"secretRef": {"name": "s", "optional": True}}],
        "env": [
            {"name": "K", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
            {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
        ],
    }
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "v"}}
    environment = start(manifest_of("digits", config_map, trainer=trainer), tmp_path).environment
    assert (environment["P_k"], environment["K"], environment["N"]) == ("v", "v", "digits-a0-0")
    assert "S" not in environment


def test_each_node_has_gpus_of_its_own(tmp_path: Path) -> None:
    trainer = {"image": "i", "script": "a", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
    found = [
        start(manifest_of(trainer=trainer), tmp_path, ordinal, gpus=("0", "1", "4", "5")).environment
        for ordinal in (0, 1)
    ]
    assert [environment["CUDA_VISIBLE_DEVICES"] for environment in found] == ["0,1", "4,5"]


def test_what_has_no_effect_without_a_cluster_is_said() -> None:
    spec = manifest_of(
        trainer={"image": "i", "script": "a", "resources": {"limits": {"cpu": 1}}},
        template={"spec": {"nodeSelector": {"a": "b"}, "containers": [{"name": "trainer"}, {"name": "side"}]}},
    ).spec
    assert without_effect(spec) == [
        "spec.trainer.image",
        "spec.trainer.resources (but for GPUs and procsPerNode)",
        "spec.template.spec.nodeSelector",
        "spec.template.spec.containers beside the trainer",
    ]
    assert without_effect(manifest_of().spec) == ["spec.trainer.image"]


def test_the_newest_unfinished_job_of_the_same_spec_goes_on() -> None:
    asked = manifest_of().job
    left = {**asked, "spec": {**asked["spec"], "suspend": True}, "status": {"phase": "Suspended"}}
    newer, ended = {**left, "newer": True}, {**left, "status": {"phase": "Succeeded"}}
    another = manifest_of(nodes=3).job
    assert to_go_on([left, newer, ended, another], asked) == (newer, [another])
    assert to_go_on([ended, another], asked) == (None, [another])


def test_a_job_is_run_by_one_process_at_a_time(tmp_path: Path) -> None:
    records = Records(tmp_path, "default", "digits")
    with records.held(), pytest.raises(LocalError, match=r"digits runs already, as process \d+"), records.held():
        pass


def test_jobs_are_kept_in_the_order_in_which_they_were_made(tmp_path: Path) -> None:
    records = Records(tmp_path, "default", "digits")
    jobs = [{"metadata": {"uid": uid, "creationTimestamp": f"2026-01-0{uid[1]}T00:00:00Z"}} for uid in ("b1", "a2")]
    for job in reversed(jobs):
        records.save(job)
    assert records.left() == jobs
    (records.folder / "b1/job.json").write_text("{")
    (records.folder / "moved").mkdir()
    (records.folder / "moved/job.json").write_text((records.folder / "a2/job.json").read_text())
    assert records.left() == jobs[1:]


def test_an_unfinished_job_is_told_by_what_it_runs() -> None:
    status = {"progress": {"step": 7}}
    job = manifest_of(trainer={"image": "i", "script": "/a/train.py", "args": ["50"]}).job
    job["metadata"]["uid"] = "u1"
    assert told_of([{**job, "status": status}], Path("/jobs")) == (
        "digits was left unfinished at step 7, as /a/train.py 50: its own command goes on with that, "
        "unless /jobs/u1 is deleted"
    )


def test_what_is_kept_has_a_place_that_can_be_chosen() -> None:
    assert default_home({"DDPJOB_HOME": "/d", "XDG_STATE_HOME": "/s"}) == Path("/d")
    assert default_home({"XDG_STATE_HOME": "/s"}) == Path("/s/ddpjob")
    assert default_home({}) == Path.home() / ".local/state/ddpjob"


def test_the_state_of_a_job_is_one_line_which_is_not_said_twice() -> None:
    status = {
        "phase": "Running",
        "nodes": {"desired": 2, "ready": 2},
        "attempt": 1,
        "progress": {"step": 1, "totalSteps": 9},
        "summary": {"nodes": "2/2", "step": "1/9"},
    }
    err = io.StringIO()
    console = Console(err=err)
    for restarts in (1, 2):
        console.status(DDPJobStatus.model_validate({**status, "restarts": {"process": restarts}}))
    assert err.getvalue() == "ddpjob: Running  2/2 nodes  attempt 1  step 1/9\n"


def test_what_the_terminal_has_no_character_for_is_shown_as_its_code() -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = Console(out=out, err=out)
    console.output("digits-a0-0", "loss \u2193")
    console.event("Normal", "Said", "\u2713")
    assert out.buffer.getvalue() == b"loss \\u2193\nddpjob: Said: \\u2713\n"  # type: ignore[attr-defined]


def test_what_is_advised_of_a_cluster_is_advised_of_this_machine() -> None:
    cluster, local = ClusterAdvice(), LocalAdvice(Path("/j"))
    assert (cluster.see_log("digits-a0-1"), local.see_log("digits-a0-1")) == (
        "see kubectl logs digits-a0-1",
        "see /j/digits-a0-1/log",
    )
    assert (cluster.check_rendezvous("digits-a0-0"), local.check_rendezvous("digits-a0-0")) == (
        "check kubectl logs digits-a0-0, the cluster's DNS and its network policies",
        "see /j/digits-a0-0/log",
    )
    assert (cluster.see_output("digits"), local.see_output("digits")) == (
        "kubectl logs -l ddpjob.dev/job=digits shows what it does",
        "its output shows what it does",
    )
    assert (cluster.resume(), local.resume()) == (
        "no pods while spec.suspend is true; set it to false to resume",
        "no processes are running; run the same command again to resume",
    )
