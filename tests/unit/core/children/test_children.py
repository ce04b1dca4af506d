"""What a job's objects look like."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from world import environment_of, spec_of

from ddpjob_core.api.kubernetes import ResourceRequirements
from ddpjob_core.api.launchers import Launcher
from ddpjob_core.api.names import parse_pod_name, pod_name
from ddpjob_core.api.quantity import parse_quantity
from ddpjob_core.api.template import template_errors
from ddpjob_core.children.affinity import away_from
from ddpjob_core.children.hashes import spec_hash
from ddpjob_core.children.launcher_config import build_launcher
from ddpjob_core.children.pod import build_pod
from ddpjob_core.children.processes import processes_of, resolve_procs_per_node
from ddpjob_core.children.service import build_service
from ddpjob_core.children.ssh_key import build_ssh_key
from ddpjob_core.observations.observed import JobRecord

JOB = JobRecord("ml", "digits", "uid-1", "1", 1, deleting=False, spec=None)


@given(nodes=st.integers(1, 10_000), attempt=st.integers(0, 9_999), data=st.data())
def test_pod_names_are_host_names_that_sort_as_their_ordinals(nodes: int, attempt: int, data: st.DataObject) -> None:
    first, second = sorted((data.draw(st.integers(0, nodes - 1)), data.draw(st.integers(0, nodes - 1))))
    longest = "j" * 52
    one, other = (pod_name(longest, attempt, ordinal, nodes) for ordinal in (first, second))
    assert len(one) <= 63
    assert (one < other) == (first < second)
    identity = parse_pod_name(longest, one)
    assert identity is not None
    assert (identity.attempt, identity.ordinal) == (attempt, first)


@pytest.mark.parametrize("name", ["digits", "digits-a0", "digits-a0-x", "digits-a01-0", "other-a0-0", "digits-a0-0-0"])
def test_other_names_are_not_pod_names(name: str) -> None:
    assert parse_pod_name("digits", name) is None


def test_every_child_is_owned_by_the_job_without_blocking_its_deletion() -> None:
    for child in (build_pod(JOB, spec_of(), 0, 0), build_service(JOB, spec_of())):
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == ("uid-1", True, False)


def test_c10d_gets_neither_node_rank_nor_master_address() -> None:
    environment = environment_of(JOB, spec_of(nodes=3), 2, 1)
    assert "PET_NODE_RANK" not in environment
    assert not [name for name in environment if name.startswith("PET_MASTER")]
    assert environment["PET_RDZV_ENDPOINT"] == "digits-a2-0.digits:29500"
    assert environment["PET_RDZV_ID"] == "uid-1-2"
    assert "is_host=0" in environment["PET_RDZV_CONF"].split(",")
    assert environment["DDPJOB_NODE_RANK"] == "1"


def test_static_gets_node_rank_and_master_address_and_no_endpoint() -> None:
    spec = spec_of(nodes=3, rendezvous={"backend": "static", "port": 12355, "timeoutSeconds": 60})
    environment = environment_of(JOB, spec, 0, 2)
    assert environment["PET_NODE_RANK"] == "2"
    assert (environment["PET_MASTER_ADDR"], environment["PET_MASTER_PORT"]) == ("digits-a0-0.digits", "12355")
    assert "PET_RDZV_ENDPOINT" not in environment
    assert environment["PET_RDZV_CONF"] == "timeout=60"


def test_under_python_a_process_knows_its_node_and_nothing_of_torchruns() -> None:
    spec = spec_of(nodes=3, procsPerNode=2, launcher="python", rendezvous={"port": 12355})
    environment = environment_of(JOB, spec, 1, 2)
    assert not [name for name in environment if name.startswith("PET_")]
    assert (environment["RANK"], environment["WORLD_SIZE"], environment["DDPJOB_PROCS_PER_NODE"]) == ("2", "3", "2")
    assert (environment["MASTER_ADDR"], environment["MASTER_PORT"]) == ("digits-a1-0.digits", "12355")
    assert environment["DDPJOB_LAUNCHER"] == "python"


def test_under_mpirun_the_operator_tells_where_rank_0_is_and_mpirun_the_rest() -> None:
    spec = spec_of(nodes=3, procsPerNode=2, launcher="mpirun", rendezvous={"port": 12355})
    environment = environment_of(JOB, spec, 1, 2)
    assert not [name for name in environment if name.startswith(("PET_", "RANK", "WORLD_SIZE", "LOCAL_"))]
    assert (environment["MASTER_ADDR"], environment["MASTER_PORT"]) == ("digits-a1-0.digits", "12355")
    assert (environment["DDPJOB_LAUNCHER"], environment["DDPJOB_PROCS_PER_NODE"]) == ("mpirun", "2")


@pytest.mark.parametrize(
    ("launcher", "nodes", "mounted"), [("mpirun", 2, True), ("mpirun", 1, False), ("torchrun", 2, False)]
)
def test_only_where_mpirun_has_to_reach_other_nodes_is_there_a_key(launcher: str, nodes: int, *, mounted: bool) -> None:
    pod = build_pod(JOB, spec_of(nodes=nodes, launcher=launcher), 0, nodes - 1)["spec"]
    mounts = {mount["name"]: mount for mount in pod["containers"][0]["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert ("ddpjob-ssh" in mounts, "ddpjob-ssh" in volumes) == (mounted, mounted)
    if mounted:
        assert mounts["ddpjob-ssh"]["mountPath"] == "/ddpjob-ssh"
        assert volumes["ddpjob-ssh"]["secret"]["secretName"] == build_ssh_key(JOB)["metadata"]["name"]


def test_the_secret_of_a_key_is_this_very_jobs_and_goes_with_it() -> None:
    metadata = build_ssh_key(JOB)["metadata"]
    assert JOB.uid in metadata["name"]
    assert [owner["uid"] for owner in metadata["ownerReferences"]] == [JOB.uid]


def test_what_all_pods_have_alike_stands_in_the_launchers_config_map_which_wins_over_the_users() -> None:
    trainer = {"image": "i", "script": "train.py", "envFrom": [{"configMapRef": {"name": "mine"}}]}
    spec = spec_of(nodes=3, trainer=trainer)
    pods = [build_pod(JOB, spec, attempt, ordinal) for attempt, ordinal in ((0, 0), (0, 2), (1, 0))]
    config = build_launcher(JOB, spec)
    for pod in pods:
        (container,) = pod["spec"]["containers"]
        assert [source["configMapRef"]["name"] for source in container["envFrom"]] == [
            "mine",
            config["metadata"]["name"],
        ]
        assert not {each["name"] for each in container["env"]} & set(config["data"])
        (volume,) = [volume for volume in pod["spec"]["volumes"] if "configMap" in volume]
        assert [item["key"] for item in volume["configMap"]["items"]] == list(config["binaryData"])


@pytest.mark.parametrize(
    "fields", [{"suspend": True}, {"restart": {"maxProcessRestarts": 1}}, {"progressDeadline": {"seconds": 77}}]
)
def test_a_field_that_may_change_while_pods_run_needs_no_other_config_map(fields: dict[str, object]) -> None:
    assert build_launcher(JOB, spec_of(**fields)) == build_launcher(JOB, spec_of())
    assert spec_hash(spec_of(**fields)) == spec_hash(spec_of())


@given(
    job=st.sampled_from([JOB, replace(JOB, uid="uid-2"), replace(JOB, namespace="other")]),
    fields=st.fixed_dictionaries(
        {},
        optional={
            "procsPerNode": st.sampled_from([1, 2]),
            "launcher": st.sampled_from(list(Launcher)),
            "metrics": st.sampled_from([{"port": 9500}, {"port": 9501}]),
            "gracePeriodSeconds": st.sampled_from([5, 6]),
            "rendezvous": st.sampled_from([{"port": 29501}, {"backend": "static"}]),
            "template": st.just({"spec": {"hostNetwork": True}}),
        },
    ),
)
def test_config_maps_with_another_content_have_another_name(job: JobRecord, fields: dict[str, object]) -> None:
    one, other = build_launcher(JOB, spec_of()), build_launcher(job, spec_of(**fields))
    same = (one["data"], one["binaryData"]) == (other["data"], other["binaryData"])
    assert (one["metadata"]["name"] == other["metadata"]["name"]) is same


def test_a_users_rendezvous_keys_win() -> None:
    spec = spec_of(rendezvous={"conf": {"keep_alive_interval": "2", "join_timeout": "30"}})
    conf = environment_of(JOB, spec, 0, 0)["PET_RDZV_CONF"].split(",")
    assert {"keep_alive_interval=2", "join_timeout=30"} <= set(conf)
    assert "join_timeout=600" not in conf


def test_the_pod_has_no_credential_no_service_variables_and_shared_memory_of_the_node() -> None:
    spec = build_pod(JOB, spec_of(), 0, 0)["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert {"name": "ddpjob-shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}} in spec["volumes"]
    assert {"name": "ddpjob-shared-memory", "mountPath": "/dev/shm"} in spec["containers"][0]["volumeMounts"]


@pytest.mark.parametrize(
    ("resources", "size"),
    [
        ({"limits": {"memory": "3Gi"}}, "3Gi"),
        ({"limits": {"memory": 1073741824}}, "1073741824"),
        ({"requests": {"memory": "3Gi"}}, "16Gi"),
        ({"limits": {"cpu": 1}}, "16Gi"),
        ({}, "16Gi"),
    ],
)
def test_shared_memory_is_as_large_as_the_trainers_memory_may_be(resources: dict[str, Any], size: str) -> None:
    for fields in (
        {"trainer": {"image": "i", "script": "train.py", "resources": resources}},
        {"template": {"spec": {"containers": [{"name": "trainer", "resources": resources}]}}},
    ):
        volumes = build_pod(JOB, spec_of(**fields), 0, 0)["spec"]["volumes"]
        (found,) = [each["emptyDir"] for each in volumes if each["name"] == "ddpjob-shared-memory"]
        assert found == {"medium": "Memory", "sizeLimit": size}


@pytest.mark.parametrize("field", ["automountServiceAccountToken", "enableServiceLinks"])
def test_null_in_the_template_is_not_the_default_of_kubernetes_but_ours(field: str) -> None:
    assert build_pod(JOB, spec_of(template={"spec": {field: None}}), 0, 0)["spec"][field] is False


def test_each_local_rank_has_a_named_metrics_port() -> None:
    spec = spec_of(procsPerNode=3, metrics={"port": 9500})
    ports = build_pod(JOB, spec, 0, 0)["spec"]["containers"][0]["ports"]
    metrics = [(p["name"], p["containerPort"]) for p in ports if p["name"].startswith("metrics")]
    assert metrics == [("metrics-0", 9500), ("metrics-1", 9501), ("metrics-2", 9502)]


def test_a_command_is_the_whole_command_and_gets_the_launchers_variables() -> None:
    spec = spec_of(trainer={"image": "i", "command": ["bash", "-c"], "args": ["torchrun train.py"]})
    pod = build_pod(JOB, spec, 0, 0)
    container = pod["spec"]["containers"][0]
    assert (container["command"], container["args"]) == (["bash", "-c"], ["torchrun train.py"])
    assert {"PET_NNODES", "PET_NPROC_PER_NODE", "DDPJOB_UID"} <= {each["name"] for each in container["env"]}
    assert "envFrom" not in container
    assert not [v for v in pod["spec"]["volumes"] if "configMap" in v]


def test_the_templates_trainer_is_merged_by_name_and_spec_trainer_wins() -> None:
    template = {
        "metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}},
        "spec": {
            "nodeSelector": {"gpu": "yes"},
            "containers": [
                {"name": "sidecar", "image": "s"},
                {
                    "name": "trainer",
                    "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}],
                    "resources": {"limits": {"cpu": "4", "memory": "1Gi"}},
                    "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
                },
            ],
        },
    }
    trainer = {
        "image": "i",
        "script": "t.py",
        "env": [{"name": "B", "value": "2"}],
        "resources": {"limits": {"memory": "2Gi"}},
    }
    spec = spec_of(template=template, trainer=trainer)
    pod = build_pod(JOB, spec, 0, 0)
    container, sidecar = pod["spec"]["containers"]
    assert (sidecar["name"], sidecar["image"], "env" in sidecar) == ("sidecar", "s", False)
    assert container["resources"] == {"limits": {"cpu": "4", "memory": "2Gi"}}
    assert container["lifecycle"] == {"preStop": {"sleep": {"seconds": 1}}}
    assert {name: environment_of(JOB, spec)[name] for name in ("A", "B")} == {"A": "1", "B": "2"}
    assert pod["spec"]["nodeSelector"] == {"gpu": "yes"}
    assert pod["metadata"]["labels"]["team"] == "a"
    assert pod["metadata"]["annotations"] == {
        "note": "b",
        "kubectl.kubernetes.io/default-container": "trainer",
        "ddpjob.dev/spec-hash": spec_hash(spec),
    }


def test_ports_of_one_number_and_two_protocols_are_two_ports() -> None:
    ports = [
        {"containerPort": 53, "protocol": "UDP", "name": "d"},
        {"containerPort": 53, "protocol": "TCP", "name": "t"},
    ]
    spec = spec_of(trainer={"image": "i", "script": "t.py", "ports": ports})
    names = [port["name"] for port in build_pod(JOB, spec, 0, 0)["spec"]["containers"][0]["ports"]]
    assert names == ["rendezvous", "metrics-0", "d", "t"]


@pytest.mark.parametrize(
    ("template", "field"),
    [
        ({"spce": {}}, "spec.template.spce"),
        ({"spec": []}, None),
        ({"spec": "x"}, "spec.template.spec"),
        ({"metadata": {"name": "x"}}, "spec.template.metadata.name"),
        ({"metadata": {"labels": {"ddpjob.dev/job": "x"}}}, "spec.template.metadata.labels[ddpjob.dev/job]"),
        (
            {"metadata": {"labels": {"app.kubernetes.io/name": "ddpjob-operator"}}},
            "spec.template.metadata.labels[app.kubernetes.io/name]",
        ),
        ({"metadata": {"labels": {"app.kubernetes.io/name": "digits"}}}, None),
        ({"spec": {"restartPolicy": "Always"}}, "spec.template.spec.restartPolicy"),
        ({"spec": {"hostname": "x"}}, "spec.template.spec.hostname"),
        ({"spec": {"terminationGracePeriodSeconds": 600}}, "spec.template.spec.terminationGracePeriodSeconds"),
        (
            {"spec": {"containers": [{"name": "trainer", "resources": {"limits": ["x"]}}]}},
            "spec.template.spec.containers[0].resources.limits",
        ),
        (
            {"spec": {"containers": [{"name": "trainer", "resources": {"requests": {"cpu": {}}}}]}},
            "spec.template.spec.containers[0].resources.requests[cpu]",
        ),
        ({"spec": {"containers": {}}}, "spec.template.spec.containers"),
        ({"spec": {"volumes": ["x"]}}, "spec.template.spec.volumes[0]"),
        (
            {"spec": {"containers": [{"name": "trainer", "command": ["x"]}]}},
            "spec.template.spec.containers[0].command",
        ),
        (
            {"spec": {"containers": [{"name": "trainer", "env": [{"name": "WORLD_SIZE"}]}]}},
            "spec.template.spec.containers[0].env[WORLD_SIZE]",
        ),
        (
            {"spec": {"containers": [{"name": "trainer", "resources": {"limits": {"cpu": "9" * 8192 + "x"}}}]}},
            "spec.template.spec.containers[0].resources.limits[cpu]",
        ),
        (
            {"spec": {"containers": [{"name": "trainer", "resources": {"limits": {"nvidia.com/gpu": -3}}}]}},
            "spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]",
        ),
        ({"spec": {"x": [[]] * 100_000}}, "spec.template"),
    ],
)
def test_what_a_template_cannot_say_is_refused_by_the_name_of_the_field(
    template: dict[str, Any], field: str | None
) -> None:
    errors = template_errors(template)
    assert [error.split(":")[0] for error in errors] == ([field] if field else [])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "spec",
                    "metadata",
                    "labels",
                    "annotations",
                    "containers",
                    "volumes",
                    "name",
                    "trainer",
                    "env",
                    "resources",
                    "limits",
                    "ports",
                    "volumeMounts",
                    "cpu",
                    "securityContext",
                    "envFrom",
                ]
            )
            | st.text(max_size=5),
            inner | st.just("trainer"),
            max_size=4,
        )
    ),
    max_leaves=30,
)


containers = st.dictionaries(
    st.sampled_from(["env", "resources", "ports", "volumeMounts", "securityContext", "envFrom", "image"]), json_values
).map(lambda fields: {"spec": {"containers": [{**fields, "name": "trainer"}]}})


@given(template=st.dictionaries(st.sampled_from(["spec", "metadata"]), json_values) | containers)
def test_any_template_is_either_refused_or_makes_a_pod(template: dict[str, Any]) -> None:
    spec = spec_of(template=template, procsPerNode="auto")
    if not template_errors(spec.template):
        assert build_pod(JOB, spec, 0, 0)["spec"]["containers"][0]["name"] == "trainer"
        assert processes_of(spec) >= 1


@pytest.mark.parametrize(
    ("asked", "resources", "processes"),
    [
        (3, {}, 3),
        ("auto", {}, 1),
        ("auto", {"requests": {"cpu": "3900m"}}, 3),
        ("auto", {"requests": {"cpu": "500m"}}, 1),
        ("auto", {"limits": {"cpu": 4}}, 4),
        ("auto", {"limits": {"cpu": 8}, "requests": {"cpu": 2}}, 2),
        ("auto", {"limits": {"nvidia.com/gpu": 8, "cpu": 64}}, 8),
        ("auto", {"limits": {"amd.com/gpu": "2"}, "requests": {"amd.com/gpu": "2"}}, 2),
        ("auto", {"limits": {"nvidia.com/mig-1g.5gb": 2, "cpu": 8}}, 1),
        ("auto", {"limits": {"nvidia.com/mig-1g.5gb.shared": 1, "cpu": 8}}, 1),
        ("auto", {"limits": {"nvidia.com/gpu.shared": 2, "cpu": 8}}, 1),
        ("auto", {"limits": {"amd.com/cpx_nps4": 8, "cpu": 2}}, 8),
        ("auto", {"limits": {"gpu.intel.com/i915": 2, "cpu": 8}}, 2),
        ("auto", {"limits": {"gpu.intel.com/xe": 2, "gpu.intel.com/xe_monitoring": 1, "cpu": 8}}, 2),
        ("auto", {"limits": {"gpu.intel.com/i915": 1, "gpu.intel.com/millicores": 1000}}, 1),
        ("auto", {"limits": {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3000}}, 2),
        ("auto", {"limits": {"nvidia.com/gpu": 0, "cpu": 8}}, 8),
        ("auto", {"limits": {"example.com/gpu": 4, "cpu": 8}}, 4),
        ("auto", {"limits": {"example.com/npu": 4, "cpu": 8}}, 8),
    ],
)
def test_auto_processes_are_the_gpus_else_the_processors_asked_for(
    asked: int | str, resources: dict[str, Any], processes: int
) -> None:
    assert resolve_procs_per_node(asked, resources) == processes


@pytest.mark.parametrize(
    ("text", "value"),
    [("2", "2"), (2, "2"), ("1500m", "1.5"), ("4Gi", str(4 * 1024**3)), ("1e3", "1000"), (".5", "0.5"), ("2k", "2000")],
)
def test_quantities_are_read_as_kubernetes_reads_them(text: int | str, value: str) -> None:
    assert parse_quantity(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "1Qi", "--1", "1e", "NaN", "٣", 10**30, "9" * 8192 + "x", "9" * 65])
def test_what_is_not_a_quantity_is_none(text: str | int) -> None:
    assert parse_quantity(text) is None


PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
OWN_AFFINITY = {
    "podAntiAffinity": {"a": 1},
    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"b": 2}},
}


def test_a_wish_to_be_elsewhere_is_added_to_the_template_s_own_affinity() -> None:
    spec = spec_of(template={"spec": {"affinity": OWN_AFFINITY}})
    assert build_pod(JOB, spec, 0, 0)["spec"]["affinity"] == OWN_AFFINITY
    affinity = build_pod(JOB, spec, 1, 0, lost_nodes=["n1", "n2"])["spec"]["affinity"]
    assert affinity["podAntiAffinity"] == {"a": 1}
    by_node = affinity["nodeAffinity"]
    assert by_node["requiredDuringSchedulingIgnoredDuringExecution"] == {"b": 2}
    (wish,) = by_node["preferredDuringSchedulingIgnoredDuringExecution"]
    assert [field["values"] for field in wish["preference"]["matchFields"]] == [["n1"], ["n2"]]
    assert "preferredDuringSchedulingIgnoredDuringExecution" not in OWN_AFFINITY["nodeAffinity"]


@pytest.mark.parametrize("affinity", ["x", {"nodeAffinity": "x"}, {"nodeAffinity": {PREFERRED: "x"}}])
def test_a_malformed_affinity_is_left_to_the_api_server(affinity: object) -> None:
    assert away_from(["n1"], affinity) == {}


@pytest.mark.parametrize(
    ("amount", "processes"), [(0.5, 1), ("0.5", 1), (2.5, 2), ("2.5", 2), (3, 3), ("3", 3), (1e3, 256), ("1e3", 256)]
)
def test_a_number_counts_as_the_same_quantity_as_text(amount: float | str, processes: int) -> None:
    spec = spec_of(
        procsPerNode="auto", trainer={"image": "i", "script": "t.py", "resources": {"limits": {"cpu": amount}}}
    )
    assert min(processes_of(spec), 256) == processes


@pytest.mark.parametrize("amount", [True, [], {}, -1, "-1", "much", "1" * 65, 1e19, "1 "])
def test_anything_but_a_quantity_is_refused_where_it_is_read(amount: object) -> None:
    with pytest.raises(ValidationError, match="must be a non-negative quantity"):
        ResourceRequirements.model_validate({"limits": {"cpu": amount}})
