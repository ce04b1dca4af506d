"""What the real API server makes of a DDPJob: what it accepts, refuses, fills in, shows and keeps fixed."""

import copy
import itertools
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ddpjob_core.api import DDPJobSpec
from ddpjob_core.api.columns import COLUMNS
from ddpjob_core.api.scope import Scope
from ddpjob_core.children.launcher_config import build_launcher
from ddpjob_core.children.pod import build_pod
from ddpjob_core.children.service import build_service
from ddpjob_core.children.ssh_key import build_ssh_key
from ddpjob_core.observations.observe import job_record
from ddpjob_core.observations.observed import JobRecord
from tests.apiserver.controlplane import ROOT, ApiError, Client, ControlPlane, Json, wait_for

API = "ddpjob.dev/v1alpha1"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
TRAINER = {"image": "i", "script": "train.py"}
HIGHEST_PRIORITY = 1_000_000_000
"""Of a class that is not reserved for Kubernetes' own."""
NAMES = itertools.count()

Make = Callable[..., Json]
Kubectl = Callable[..., str]


@pytest.fixture
def make(admin: Client, namespace: str) -> Make:
    """Create a DDPJob of the fields given; without a name, under a new one."""

    def create(name: str = "", **spec: Any) -> Json:
        return admin.create(manifest(namespace, name or f"job-{next(NAMES)}", **spec))

    return create


@pytest.fixture(scope="session")
def kubectl(control_plane: ControlPlane) -> Kubectl:
    def run(*arguments: str) -> str:
        # Its own cache: what another server on the same port once offered must not be believed.
        cache = control_plane.folder / "kubectl-cache"
        options = ("--kubeconfig", str(control_plane.admin_kubeconfig), "--cache-dir", str(cache))
        program = str(control_plane.assets / "kubectl")
        return subprocess.run(
            [program, *options, *arguments], check=True, capture_output=True, text=True, timeout=60
        ).stdout

    return run


def manifest(namespace: str, name: str, **spec: Any) -> Json:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": API, "kind": "DDPJob", "metadata": metadata, "spec": {"trainer": TRAINER, **spec}}


def path_of(job: Json) -> str:
    metadata = job["metadata"]
    return f"/apis/{API}/namespaces/{metadata['namespace']}/ddpjobs/{metadata['name']}"


def trainer(**fields: Any) -> Json:
    return {"trainer": {**TRAINER, **fields}}


INVALID: dict[str, tuple[Json, str]] = {
    "no trainer": ({"trainer": None}, r"spec\.trainer: Required value"),
    "no image": ({"trainer": {"script": "a.py"}}, r"spec\.trainer\.image: Required value"),
    "an empty image": (trainer(image=""), r"spec\.trainer\.image.*at least 1 char"),
    "no nodes": ({"nodes": 0}, r"spec\.nodes.*greater than or equal to 1"),
    "too many nodes": ({"nodes": 10_001}, r"spec\.nodes.*less than or equal to 10000"),
    "nodes as text": ({"nodes": "2"}, r"spec\.nodes.*must be of type integer"),
    "no processes": ({"procsPerNode": 0}, r"spec\.procsPerNode.*from 1 to 256, or auto"),
    "too many processes": ({"procsPerNode": 257}, r"spec\.procsPerNode.*from 1 to 256, or auto"),
    "processes by a word": ({"procsPerNode": "gpu"}, r"spec\.procsPerNode.*from 1 to 256, or auto"),
    "a number as text": ({"procsPerNode": "2"}, r"spec\.procsPerNode.*from 1 to 256, or auto"),
    "more processes than a job may have": (
        {"nodes": 10_000, "procsPerNode": 256},
        r"spec\.nodes: .*spec.nodes x spec.procsPerNode must be at most 100,000 processes: reduce one of them",
    ),
    "more processes than an elastic job may have": (
        {"procsPerNode": 256, "elastic": {"maxNodes": 10_000}},
        r"spec\.elastic\.maxNodes: .*spec\.elastic\.maxNodes x spec\.procsPerNode must be at most 100,000 processes",
    ),
    "fewer nodes than the least": (
        {"nodes": 1, "elastic": {"minNodes": 2, "maxNodes": 4}},
        r"spec\.nodes: .*must be from spec\.elastic\.minNodes to spec\.elastic\.maxNodes",
    ),
    "more nodes than the most": (
        {"nodes": 5, "elastic": {"maxNodes": 4}},
        r"spec\.nodes: .*must be from spec\.elastic\.minNodes to spec\.elastic\.maxNodes",
    ),
    "a least size above the most": (
        {"nodes": 2, "elastic": {"minNodes": 3, "maxNodes": 2}},
        r"spec\.elastic\.minNodes: .*must be at most spec\.elastic\.maxNodes",
    ),
    "elastic without a greatest size": ({"elastic": {"minNodes": 1}}, r"spec\.elastic\.maxNodes: Required value"),
    "elastic under mpirun": (
        {"launcher": "mpirun", "elastic": {"maxNodes": 2}},
        r"spec\.elastic: .*only with the launcher torchrun or torch\.distributed\.launch",
    ),
    "elastic with the static rendezvous": (
        {"rendezvous": {"backend": "static"}, "elastic": {"maxNodes": 2}},
        r"spec\.elastic: .*rendezvous\.backend c10d",
    ),
    "elastic with a command": (
        {"elastic": {"maxNodes": 2}, "trainer": {"image": "i", "command": ["a"]}},
        r"spec\.elastic: .*trainer\.script or module",
    ),
    "an unknown launcher": ({"launcher": "srun"}, r'spec\.launcher.*"srun": supported values: "torchrun"'),
    "an unknown rendezvous": ({"rendezvous": {"backend": "etcd"}}, r'spec\.rendezvous\.backend.*"c10d", "static"'),
    "a privileged port": ({"rendezvous": {"port": 80}}, r"spec\.rendezvous\.port.*greater than or equal to 1024"),
    "no patience": ({"rendezvous": {"timeoutSeconds": 0}}, r"spec\.rendezvous\.timeoutSeconds.*equal to 10"),
    "who hosts the store": ({"rendezvous": {"conf": {"is_host": "1"}}}, r"spec\.rendezvous\.conf.*is_host.*remove it"),
    "two keys in one": ({"rendezvous": {"conf": {"a": "1,b=2"}}}, r"spec\.rendezvous\.conf.*contain no comma"),
    "a key that is none": ({"rendezvous": {"conf": {"A b": "1"}}}, r"spec\.rendezvous\.conf.*--rdzv-conf keys"),
    "an unknown backend": (
        {"backend": "horovod"},
        r'spec\.backend.*"horovod": supported values: "auto", "gloo", "nccl"',
    ),
    "script and module": (trainer(module="a.b"), r"spec\.trainer: .*exactly one of script"),
    "script and command": (trainer(command=["a"]), r"spec\.trainer: .*exactly one of script"),
    "nothing to run": ({"trainer": {"image": "i"}}, r"spec\.trainer: .*exactly one of script"),
    "an empty command": ({"trainer": {"image": "i", "command": []}}, r"spec\.trainer\.command.*at least 1 item"),
    "a module by its file": ({"trainer": {"image": "i", "module": "a/b.py"}}, r"spec\.trainer\.module.*should match"),
    "a reserved name": (trainer(env=[{"name": "RANK"}]), r"spec\.trainer\.env\[0\]\.name.*RANK is set.*remove it"),
    "a reserved prefix": (
        trainer(env=[{"name": "A"}, {"name": "PET_NNODES"}]),
        r"spec\.trainer\.env\[1\]\.name.*PET_NNODES is set by the launcher.*remove it",
    ),
    "a variable twice": (trainer(env=[{"name": "A"}, {"name": "A"}]), r"spec\.trainer\.env\[1\]: Duplicate value"),
    "a variable without name": (trainer(env=[{"value": "1"}]), r"spec\.trainer\.env\[0\]\.name: Required value"),
    "a port twice": (
        trainer(ports=[{"containerPort": 80}, {"containerPort": 80}]),
        r"spec\.trainer\.ports\[1\]: Duplicate value",
    ),
    "one place for two volumes": (
        trainer(volumeMounts=[{"name": "a", "mountPath": "/a"}, {"name": "b", "mountPath": "/a"}]),
        r"spec\.trainer\.volumeMounts\[1\]: Duplicate value",
    ),
    "no quantity": (
        trainer(resources={"limits": {"memory": "much"}}),
        r"spec\.trainer\.resources\.limits\.memory.*should match",
    ),
    "a boolean as a quantity": (trainer(resources={"limits": {"cpu": True}}), r"resources\.limits\.cpu.*must not"),
    "a list as a quantity": (trainer(resources={"limits": {"cpu": []}}), r"resources\.limits\.cpu.*at least 1 items"),
    "an object as a quantity": (trainer(resources={"limits": {"cpu": {"a": 1}}}), r"resources\.limits\.cpu.*Too many"),
    "less than nothing": (
        trainer(resources={"requests": {"cpu": "-1"}}),
        r"spec\.trainer\.resources\.requests\.cpu.*should match",
    ),
    "a number less than nothing": (
        trainer(resources={"requests": {"cpu": -0.5}}),
        r"spec\.trainer\.resources\.requests\.cpu.*greater than or equal to 0",
    ),
    "a size that is none": (
        {"checkpoint": {"size": "much"}},
        r"spec\.checkpoint\.size.*such as 500Mi or 16Gi",
    ),
    "an unknown pull policy": (trainer(imagePullPolicy="Often"), r'spec\.trainer\.imagePullPolicy.*"IfNotPresent"'),
    "fewer than no restarts": ({"restart": {"maxRestarts": -1}}, r"spec\.restart\.maxRestarts.*equal to 0"),
    "restarts in place that a static rendezvous cannot do": (
        {"rendezvous": {"backend": "static"}, "restart": {"maxProcessRestarts": 1}},
        r"spec\.restart\.maxProcessRestarts.*static rendezvous cannot.*use rendezvous.backend c10d",
    ),
    "restarts in place that plain python cannot do": (
        {"launcher": "python", "restart": {"maxProcessRestarts": 1}},
        r"spec\.restart\.maxProcessRestarts.*launchers python and mpirun do not.*use the launcher torchrun",
    ),
    "restarts in place that mpirun cannot do": (
        {"launcher": "mpirun", "restart": {"maxProcessRestarts": 1}},
        r"spec\.restart\.maxProcessRestarts.*launchers python and mpirun do not.*use the launcher torchrun",
    ),
    "spare processes for a static rendezvous": (
        {"rendezvous": {"backend": "static"}, "restart": {"spares": 1}},
        r"spec\.restart\.spares.*take the place of workers that were killed.*remove spec\.restart\.spares",
    ),
    "spare processes for mpirun": (
        {"launcher": "mpirun", "restart": {"spares": 1}},
        r"spec\.restart\.spares.*needs the launcher torchrun",
    ),
    "too many spare processes": ({"restart": {"spares": 17}}, r"spec\.restart\.spares.*less than or equal to 16"),
    "MPI without mpirun": (
        {"backend": "mpi"},
        r"spec\.backend.*mpirun must start the processes: set spec.launcher to mpirun, or spec.backend to gloo",
    ),
    "a command under mpirun": (
        {"launcher": "mpirun", "trainer": {"image": "i", "command": ["mpirun", "python3", "train.py"]}},
        r"spec\.trainer\.command.*starts sshd and mpirun itself: set spec.trainer.script or module instead of command",
    ),
    "a rule that matches nothing": (
        {"restart": {"rules": [{"action": "Fail"}]}},
        r"spec\.restart\.rules\[0\].*set at least one of exitCodes, signals, reasons or message",
    ),
    "a rule for success": (
        {"restart": {"rules": [{"action": "Fail", "exitCodes": [0]}]}},
        r"spec\.restart\.rules\[0\]\.exitCodes\[0\].*equal to 1",
    ),
    "a rule for no signal": (
        {"restart": {"rules": [{"action": "Fail", "signals": ["9"]}]}},
        r"spec\.restart\.rules\[0\]\.signals\[0\].*should match",
    ),
    "a rule without action": (
        {"restart": {"rules": [{"exitCodes": [1]}]}},
        r"spec\.restart\.rules\[0\]\.action: Required value",
    ),
    "neither claim nor size": ({"checkpoint": {}}, r"spec\.checkpoint.*set either claimName .* or size"),
    "claim and size": (
        {"checkpoint": {"claimName": "c", "size": "1Gi"}},
        r"spec\.checkpoint.*set either claimName .* or size",
    ),
    "a storage class for a claim that exists": (
        {"checkpoint": {"claimName": "c", "storageClassName": "fast"}},
        r"spec\.checkpoint\.storageClassName.*set size instead of claimName",
    ),
    "a relative path": ({"checkpoint": {"claimName": "c", "path": "runs"}}, r"spec\.checkpoint\.path.*should match"),
    "no checkpoint kept": (
        {"checkpoint": {"claimName": "c", "keepLast": 0}},
        r"spec\.checkpoint\.keepLast.*equal to 1",
    ),
    "a deadline without an end": ({"startupDeadline": {}}, r"spec\.startupDeadline\.seconds: Required value"),
    "an unknown action": (
        {"progressDeadline": {"action": "Panic"}},
        r'spec\.progressDeadline\.action.*"Warn", "Restart", "Fail"',
    ),
    "a stall of a second": ({"progressDeadline": {"seconds": 1}}, r"spec\.progressDeadline\.seconds.*equal to 5"),
    "an unknown action of a slow rank": (
        {"slowRank": {"action": "Restart"}},
        r'spec\.slowRank\.action.*"Warn", "Replace"',
    ),
    "a slow second": ({"slowRank": {"seconds": 1}}, r"spec\.slowRank\.seconds.*equal to 5"),
    "no wall time": ({"activeDeadlineSeconds": 0}, r"spec\.activeDeadlineSeconds.*equal to 1"),
    "a time that is past": ({"ttlSecondsAfterFinished": -1}, r"spec\.ttlSecondsAfterFinished.*equal to 0"),
    "an unknown policy": ({"cleanPodPolicy": "Some"}, r'spec\.cleanPodPolicy.*"None", "Running", "All"'),
    "a grace period of a day": ({"gracePeriodSeconds": 86_400}, r"spec\.gracePeriodSeconds.*equal to 3600"),
    "a port for 256 ranks too high": ({"metrics": {"port": 65_500}}, r"spec\.metrics\.port.*equal to 65000"),
    "a mistyped field": ({"nods": 2}, r'unknown field "spec\.nods"'),
    "a mistyped field of the trainer": (trainer(arg=["a"]), r'unknown field "spec\.trainer\.arg"'),
    "a mistyped field of the template": ({"template": {"specs": {}}}, r'unknown field "spec\.template\.specs"'),
    "a label that is not text": (
        {"template": {"metadata": {"labels": {"a": 1}}}},
        r"spec\.template\.metadata\.labels\.a.*must be of type string",
    ),
}


@pytest.mark.parametrize(("spec", "said"), INVALID.values(), ids=INVALID.keys())
def test_a_wrong_spec_is_refused_with_the_field_and_what_to_do(
    admin: Client, namespace: str, spec: Json, said: str
) -> None:
    job = manifest(namespace, "wrong", **spec)
    job["spec"] = {key: value for key, value in job["spec"].items() if value is not None}
    with pytest.raises(ApiError) as refused:
        admin.create(job, dryRun="All")
    assert refused.value.code in (400, 422)
    assert re.search(said, refused.value.message), refused.value.message


@pytest.mark.parametrize("name", ["a", "a-1", "a" * 52])
def test_a_name_of_which_host_names_can_be_made_is_accepted(make: Make, name: str) -> None:
    make(name)


@pytest.mark.parametrize("name", ["a" * 53, "1a", "a.b", "a-", "A", "ä"])
def test_any_other_name_is_refused_with_the_rule(make: Make, name: str) -> None:
    with pytest.raises(ApiError, match=r"metadata\.name must be a DNS-1035 label of at most 52 characters"):
        make(name)


def test_what_is_left_out_is_filled_in_as_the_types_say(make: Make) -> None:
    stored = make()["spec"]
    assert stored == {
        "nodes": 1,
        "procsPerNode": "auto",
        "launcher": "torchrun",
        "rendezvous": {"backend": "c10d", "port": 29500, "timeoutSeconds": 600},
        "backend": "auto",
        "trainer": TRAINER,
        "restart": {"maxRestarts": 3, "backoffSeconds": 1, "maxBackoffSeconds": 60, "noProgressLimit": 3, "spares": 0},
        "progressDeadline": {"seconds": 600, "action": "Warn"},
        "slowRank": {"seconds": 300, "action": "Warn"},
        "suspend": False,
        "cleanPodPolicy": "Running",
        "gracePeriodSeconds": 30,
        "metrics": {"port": 9401},
    }
    assert DDPJobSpec.model_validate(stored) == DDPJobSpec.model_validate({"trainer": TRAINER})


def test_a_template_pasted_from_kubectl_is_taken(make: Make) -> None:
    template = {"metadata": {"creationTimestamp": None}, "spec": {"containers": [{"name": "side", "resources": {}}]}}
    assert make(template=template)["spec"]["template"] == template


# The API server takes three megabytes, etcd half of that.
LARGEST = {
    "10,000 nodes": {"nodes": 10_000},
    "256 variables of the longest names": trainer(
        env=[{"name": f"{number:03d}".rjust(253, "V"), "value": "v" * 4000} for number in range(256)]
    ),
    "a variable of the longest value": trainer(env=[{"name": "A", "value": "v" * 32_768}]),
    "1,024 arguments": trainer(args=["a" * 1_200] * 1_024),
    "40 arguments of the longest": trainer(args=["a" * 32_768] * 40),
    "all further keys": {"rendezvous": {"conf": {f"{'k' * 60}{n:02d}": "v" * 253 for n in range(16)}}},
    "32 resources": trainer(resources={"limits": {f"example.com/{'r' * 60}{n:02d}": "1" * 60 for n in range(32)}}),
    "64 ports and mounts": trainer(
        ports=[{"containerPort": 1000 + n} for n in range(64)],
        volumeMounts=[{"name": "v", "mountPath": "/" + f"{n:02d}" * 400} for n in range(64)],
    ),
    "32 rules of the longest": {
        "restart": {
            "rules": [
                {
                    "action": "Ignore",
                    "exitCodes": list(range(1, 65)),
                    "signals": [f"SIG{n:013d}" for n in range(32)],
                    "reasons": [f"{n:064d}" for n in range(32)],
                    "message": "m" * 256,
                }
            ]
            * 32
        }
    },
    "a megabyte of template": {
        "template": {"spec": {"containers": [{"name": f"c{n}", "args": ["a" * 10_000] * 10} for n in range(10)]}}
    },
}


@pytest.mark.parametrize("spec", LARGEST.values(), ids=LARGEST.keys())
def test_the_largest_jobs_are_accepted_and_their_rules_can_be_checked_on_a_change(
    admin: Client, make: Make, spec: Json
) -> None:
    job = make(**spec)
    # Every rule compares the old with the new here: what costs too much is refused.
    changed = admin.patch(path_of(job), {"spec": {"restart": {"maxRestarts": 7}}})
    assert changed["spec"]["restart"]["maxRestarts"] == 7
    admin.delete(path_of(job))


FIXED: dict[str, tuple[Json, Json, str]] = {
    "nodes": ({}, {"nodes": 2}, "nodes"),
    "processes": ({"procsPerNode": 2}, {"procsPerNode": "auto"}, "procsPerNode"),
    "the port of the store": ({}, {"rendezvous": {"port": 3000}}, "rendezvous"),
    "a key of the rendezvous for another": (
        {"rendezvous": {"conf": {"a": "1"}}},
        {"rendezvous": {"conf": {"b": "1"}}},
        "rendezvous",
    ),
    "the volume for checkpoints": (
        {"checkpoint": {"claimName": "a"}},
        {"checkpoint": {"claimName": "b"}},
        "checkpoint",
    ),
    "a volume for checkpoints that was none": ({}, {"checkpoint": {"claimName": "a"}}, "checkpoint"),
    "the image": ({}, trainer(image="other"), "trainer"),
    "an argument": (trainer(args=["a"]), trainer(args=["b"]), "trainer"),
    "one resource for another": (
        trainer(resources={"limits": {"cpu": 1}}),
        trainer(resources={"limits": {"memory": 1}}),
        "trainer",
    ),
    "half a processor": (
        trainer(resources={"limits": {"cpu": 0.5}}),
        trainer(resources={"limits": {"cpu": 0.6}}),
        "trainer",
    ),
    "a security setting": (
        trainer(securityContext={"runAsUser": 1}),
        trainer(securityContext={"runAsUser": 2}),
        "trainer",
    ),
    "one security setting for another": (
        trainer(securityContext={"runAsUser": 1}),
        trainer(securityContext={"runAsGroup": 1}),
        "trainer",
    ),
    "a security setting taken away": (trainer(securityContext={"runAsUser": 1}), trainer(), "trainer"),
    "a template added": ({}, {"template": {"spec": {"nodeSelector": {"a": "b"}}}}, "template"),
    "a template taken away": ({"template": {"spec": {"nodeSelector": {"a": "b"}}}}, {}, "template"),
    "a value deep in the template": (
        {"template": {"spec": {"containers": [{"name": "c", "image": "a"}]}}},
        {"template": {"spec": {"containers": [{"name": "c", "image": "b"}]}}},
        "template",
    ),
    "one key of the template for another": (
        {"template": {"spec": {"nodeSelector": {}}}},
        {"template": {"spec": {"tolerations": []}}},
        "template",
    ),
    "one label for another": (
        {"template": {"metadata": {"labels": {"a": "b"}}}},
        {"template": {"metadata": {"labels": {"c": "b"}}}},
        "template",
    ),
    "the limits of the size": ({"elastic": {"maxNodes": 2}}, {"elastic": {"maxNodes": 3}}, "elastic"),
    "limits of the size that were none": ({}, {"elastic": {"maxNodes": 2}}, "elastic"),
    "the grace period": ({}, {"gracePeriodSeconds": 3}, "gracePeriodSeconds"),
    "the metrics' port": ({}, {"metrics": {"port": 3000}}, "metrics"),
}


@pytest.mark.parametrize(("before", "after", "field"), FIXED.values(), ids=FIXED.keys())
def test_what_runs_is_held_fixed_until_the_job_is_suspended(
    admin: Client, make: Make, before: Json, after: Json, field: str
) -> None:
    job = make(**before)

    def change(**more: Any) -> Json:
        update = copy.deepcopy(job)
        update["metadata"].pop("resourceVersion")
        update["metadata"]["resourceVersion"] = admin.get(path_of(job))["metadata"]["resourceVersion"]
        update["spec"] = {"trainer": TRAINER, **after, **more}
        return admin.replace(update)

    for suspend in (False, True):
        with pytest.raises(ApiError) as refused:
            change(suspend=suspend)
        assert f"spec.{field} can change only while the job is suspended: set spec.suspend to true" in str(
            refused.value
        )
    admin.patch(path_of(job), {"spec": {"suspend": True}})
    changed = change(suspend=False)
    assert changed["spec"]["suspend"] is False
    with pytest.raises(ApiError, match="can change only while the job is suspended"):
        admin.replace({**changed, "spec": {"trainer": TRAINER, **before}})


@pytest.mark.parametrize(("before", "after", "field"), FIXED.values(), ids=FIXED.keys())
def test_a_job_that_failed_for_its_spec_is_mended_by_an_edit_and_no_other(
    admin: Client, make: Make, before: Json, after: Json, field: str
) -> None:
    job = make(**before)

    def fail(reason: str, status: str = "True") -> None:
        failed = {"type": "Failed", "status": status, "reason": reason, "message": "spec.template: no"}
        failed["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        admin.patch(f"{path_of(job)}/status", {"status": {"phase": "Failed", "conditions": [failed]}})

    def edit() -> Json:
        found = admin.get(path_of(job))
        return admin.replace({**found, "spec": {"trainer": TRAINER, **after}, "status": {}})

    for reason, status in (("MaxRestartsExceeded", "True"), ("InvalidSpec", "False")):
        fail(reason, status)
        with pytest.raises(ApiError, match=rf"spec\.{field} can change only while the job is suspended"):
            edit()
    fail("InvalidSpec")
    assert edit()["metadata"]["generation"] == job["metadata"]["generation"] + 1


def test_what_concerns_only_the_end_can_change_at_any_time(admin: Client, make: Make) -> None:
    job = make(template={"spec": {"nodeSelector": {"a": "b"}}}, **trainer(securityContext={"runAsUser": 1}))
    change = {
        "ttlSecondsAfterFinished": 5,
        "cleanPodPolicy": "All",
        "activeDeadlineSeconds": 60,
        "startupDeadline": {"seconds": 60, "action": "Fail"},
        "progressDeadline": {"seconds": 60, "action": "Restart"},
        "slowRank": {"seconds": 60, "action": "Replace"},
        "suspend": True,
    }
    stored = admin.patch(path_of(job), {"spec": {**change, "restart": {"maxRestarts": 9}}})["spec"]
    assert {key: stored[key] for key in change} == change
    assert stored["restart"]["maxRestarts"] == 9


def test_a_status_changes_by_its_subresource_alone_and_may_not_be_out_of_bounds(admin: Client, make: Make) -> None:
    job = make()
    ignored = admin.patch(path_of(job), {"status": {"phase": "Running"}})
    assert ignored["status"] == {"phase": "Pending"}
    stored = admin.patch(f"{path_of(job)}/status", {"status": {"phase": "Running"}, "spec": {"suspend": True}})
    assert stored["status"] == {"phase": "Running"}
    assert stored["spec"]["suspend"] is False
    with pytest.raises(ApiError, match=r'status\.phase: Unsupported value: "Walking"'):
        admin.patch(f"{path_of(job)}/status", {"status": {"phase": "Walking"}})


def test_the_epoch_of_a_status_does_not_fall_and_is_not_left_out(admin: Client, make: Make) -> None:
    status = f"{path_of(make())}/status"
    for epoch in (None, 3, 3, 7):
        stored = admin.patch(status, {"status": {"attempt": 0, **({"leaderEpoch": epoch} if epoch else {})}})
        assert stored["status"].get("leaderEpoch") == epoch
    for lower in (6, None):
        with pytest.raises(ApiError, match=r"leaderEpoch must not fall: an operator that no longer leads") as refused:
            admin.patch(status, {"status": {"phase": "Failed", "leaderEpoch": lower}})
        assert refused.value.code == 422
    # What is erased altogether, as by a person, is made again.
    erased = {**admin.get(status.removesuffix("/status"))}
    del erased["status"]
    assert admin.request("PUT", status, erased)["status"] == {"phase": "Pending"}


STATUS = {
    "phase": "Running",
    "backend": "gloo",
    "replicas": 2,
    "selector": "ddpjob.dev/uid=1",
    "restarts": {"counted": 1},
    "summary": {"nodes": "2/2", "epoch": "7/20", "step": "210/600", "loss": "0.0831", "eta": "38s", "speed": "1.2k/s"},
    "progress": {"lastStepTime": "2026-01-01T00:00:00Z"},
}


def test_a_list_shows_the_columns_that_a_person_is_promised(admin: Client, make: Make, namespace: str) -> None:
    job = make("digits")
    admin.patch(f"{path_of(job)}/status", {"status": STATUS})
    table = admin.request("GET", f"/apis/{API}/namespaces/{namespace}/ddpjobs", accept=TABLE)
    columns = [(column["name"], column["type"], column["priority"]) for column in table["columnDefinitions"]]
    assert columns == [("Name", "string", 0), *((each.name, each.type, int(each.wide)) for each in COLUMNS)]
    cells = dict(zip((name for name, _, _ in columns), table["rows"][0]["cells"], strict=True))
    expected = {
        "Name": "digits",
        "State": "Running",
        "Nodes": "2/2",
        "Restarts": 1,
        "Epoch": "7/20",
        "Step": "210/600",
        "Loss": "0.0831",
        "Eta": "38s",
        "Speed": "1.2k/s",
        "Launcher": "torchrun",
        "Backend": "gloo",
    }
    assert expected.items() <= cells.items()
    # A phase that would mislead by itself is not shown by itself.
    admin.patch(f"{path_of(job)}/status", {"status": {"phase": "Succeeded", "state": "Succeeded,SeparateGroups"}})
    table = admin.request("GET", f"/apis/{API}/namespaces/{namespace}/ddpjobs", accept=TABLE)
    assert table["rows"][0]["cells"][1] == "Succeeded,SeparateGroups"


def test_kubectl_knows_the_short_name_and_shows_of_a_new_job_that_it_is_pending_and_nothing_else(
    kubectl: Kubectl, make: Make, admin: Client, namespace: str
) -> None:
    created = make("digits")
    assert created["status"] == {"phase": "Pending"}
    record = job_record(admin.get(path_of(created)))
    assert record is not None
    assert record.status is None, "the operator has written none"
    header, row = kubectl("--namespace", namespace, "get", "ddp").splitlines()
    assert header.split() == ["NAME", *(column.name.upper() for column in COLUMNS if not column.wide)]
    assert row.split()[:2] == ["digits", "Pending"]
    assert len(row.split()) == 3
    assert "ddpjob.ddpjob.dev/digits" in kubectl("--namespace", namespace, "get", "all")


def test_jobs_can_be_selected_by_their_phase(admin: Client, make: Make, namespace: str) -> None:
    admin.patch(f"{path_of(make('running'))}/status", {"status": STATUS})
    make("new")
    for phase, name in (("Running", "running"), ("Pending", "new")):
        found = admin.items(f"/apis/{API}/namespaces/{namespace}/ddpjobs", fieldSelector=f"status.phase={phase}")
        assert [job["metadata"]["name"] for job in found] == [name]


def test_a_job_is_scaled_by_the_scale_subresource_under_the_same_rules(admin: Client, make: Make) -> None:
    job = make(suspend=True)
    admin.patch(f"{path_of(job)}/status", {"status": STATUS})
    scale = admin.get(f"{path_of(job)}/scale")
    assert scale["spec"] == {"replicas": 1}
    assert scale["status"] == {"replicas": 2, "selector": "ddpjob.dev/uid=1"}
    admin.patch(f"{path_of(job)}/scale", {"spec": {"replicas": 4}})
    assert admin.get(path_of(job))["spec"]["nodes"] == 4
    admin.patch(path_of(job), {"spec": {"suspend": False}})
    with pytest.raises(ApiError, match=r"spec\.nodes can change only while the job is suspended"):
        admin.patch(f"{path_of(job)}/scale", {"spec": {"replicas": 2}})


def test_an_elastic_job_is_scaled_within_its_limits_while_it_runs(admin: Client, make: Make) -> None:
    job = make(elastic={"minNodes": 1, "maxNodes": 4})
    admin.patch(f"{path_of(job)}/scale", {"spec": {"replicas": 4}})
    assert admin.get(path_of(job))["spec"]["nodes"] == 4
    for replicas in (0, 5):
        with pytest.raises(ApiError, match=r"spec\.nodes"):
            admin.patch(f"{path_of(job)}/scale", {"spec": {"replicas": replicas}})
    # Neither is the size free once the limits go with it.
    with pytest.raises(ApiError, match=r"spec\.nodes can change only while the job is suspended"):
        admin.patch(path_of(job), {"spec": {"nodes": 2, "elastic": None}})


def test_kubectl_explain_teaches_every_field(admin: Client, kubectl: Kubectl) -> None:
    # The page that kubectl reads is put together some moments after the API is served.
    wait_for(lambda: admin.find(f"/openapi/v3/apis/{API}"), "the API's own description")
    text = " ".join(kubectl("explain", "ddpjob.spec.rendezvous").split())
    for taught in ("How the nodes find each other", "store hosted on ordinal 0", "enum: c10d, static", "--rdzv-conf"):
        assert taught in text
    everything = kubectl("explain", "ddpjob.spec", "--recursive")
    assert re.search(r"securityContext\s+<", everything)


def test_kubectl_refuses_a_mistyped_field(kubectl: Kubectl, namespace: str, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(manifest(namespace, "mistyped", nods=2)))
    with pytest.raises(subprocess.CalledProcessError) as refused:
        kubectl("create", "-f", str(file))
    assert 'unknown field "spec.nods"' in refused.value.stderr


@pytest.mark.parametrize("amount", [0.5, 2, 0, "500m", "1e3", "1.5", 1e-3])
def test_a_quantity_is_taken_as_a_pod_takes_it_as_a_number_or_as_text(
    admin: Client, make: Make, namespace: str, amount: float | str
) -> None:
    stored = make(**trainer(resources={"limits": {"cpu": amount}}))
    assert stored["spec"]["trainer"]["resources"]["limits"]["cpu"] == amount
    spec = DDPJobSpec.model_validate(stored["spec"])
    name, uid = stored["metadata"]["name"], stored["metadata"]["uid"]
    pod = build_pod(JobRecord(namespace, name, uid, "1", 1, deleting=False, spec=spec), spec, 0, 0)
    admin.create(pod, dryRun="All")


@pytest.mark.parametrize("example", sorted((ROOT / "manifests/examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_an_example_and_all_that_is_made_of_it_is_accepted(admin: Client, namespace: str, example: Path) -> None:
    for raw in yaml.safe_load_all(example.read_text()):
        raw["metadata"]["namespace"] = namespace
        stored = admin.create(raw)
        if raw["kind"] == "DDPJob":
            spec = DDPJobSpec.model_validate(stored["spec"])
            metadata = stored["metadata"]
            job = JobRecord(namespace, metadata["name"], metadata["uid"], "1", 1, deleting=False, spec=spec)
            key = {**build_ssh_key(job), "stringData": {"ssh-privatekey": "x"}}
            for child in (build_service(job, spec), build_launcher(job, spec), key, build_pod(job, spec, 0, 0)):
                admin.create(child, dryRun="All")


def test_the_operator_of_a_list_of_namespaces_has_roles_in_these_and_nothing_in_the_cluster(
    kubectl: Kubectl, control_plane: ControlPlane, tmp_path: Path
) -> None:
    folder = ROOT / "manifests/overlays/namespaces"
    built = list(yaml.safe_load_all(kubectl("kustomize", str(folder))))
    places = sorted((each["kind"], each["metadata"]["namespace"]) for each in built)
    teams = [(kind, team) for kind in ("Role", "RoleBinding") for team in ("team-a", "team-b")]
    own = [(kind, "ddpjob-system") for kind in ("Deployment", "Role", "RoleBinding", "ServiceAccount")]
    assert places == sorted([*teams, *own])
    cluster = list(yaml.safe_load_all(kubectl("kustomize", str(folder / "cluster"))))
    names = [(each["kind"], each["metadata"]["name"]) for each in cluster]
    policies = [("ValidatingAdmissionPolicy", "ddpjob-pods"), ("ValidatingAdmissionPolicyBinding", "ddpjob-pods")]
    assert sorted(names) == [("Namespace", "ddpjob-system"), ("PriorityClass", "ddpjob-critical"), *policies]
    # Two of the namespaces of this run stand for those of the example.
    teams_here = {f"team-{letter}": control_plane.new_namespace() for letter in "ab"}
    for each in built:
        each["metadata"]["namespace"] = teams_here.get(each["metadata"]["namespace"], each["metadata"]["namespace"])
        if each["kind"] == "RoleBinding":
            assert [subject["namespace"] for subject in each["subjects"]] == ["ddpjob-system"]
    file = tmp_path / "namespaces.yaml"
    file.write_text(yaml.safe_dump_all([*cluster, *built]))
    kubectl("apply", "--dry-run=server", "--server-side", "--force-conflicts", "-f", str(file))
    deployment = next(each for each in built if each["kind"] == "Deployment")
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert arguments == [f"--namespace={team}" for team in teams_here]
    cluster_role = yaml.safe_load((ROOT / "manifests/base/cluster-role.yaml").read_text())
    for each in built:
        if each["kind"] == "Role" and each["metadata"]["namespace"] != "ddpjob-system":
            assert each["rules"] == cluster_role["rules"]
        elif each["kind"] == "Role":
            assert each["rules"][1]["resourceNames"] == [Scope.of("team-a", "team-b").lease]


@pytest.mark.parametrize(("folder", "more"), [("base", []), ("overlays/high-availability", ["PodDisruptionBudget"])])
def test_the_operator_is_accepted_as_kustomize_puts_it_together(
    kubectl: Kubectl, admin: Client, tmp_path: Path, folder: str, more: list[str]
) -> None:
    text = kubectl("kustomize", str(ROOT / "manifests" / folder))
    (tmp_path / "base.yaml").write_text(text)
    kubectl("apply", "--dry-run=server", "--server-side", "--force-conflicts", "-f", str(tmp_path / "base.yaml"))
    kinds = [each["kind"] for each in yaml.safe_load_all(text)]
    roles = ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]
    policies = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]
    others = ["Deployment", "Namespace", "PriorityClass", "ServiceAccount"]
    assert sorted(kinds) == sorted([*roles, *more, *policies, *others])
    deployment = next(each for each in yaml.safe_load_all(text) if each["kind"] == "Deployment")
    assert deployment["spec"]["replicas"] == 1 + len(more)
    pod = deployment["spec"]["template"]
    namespace = deployment["metadata"]["namespace"]
    # The namespace refuses what the restricted Pod Security Standard refuses.
    created = admin.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "operator", "namespace": namespace, **pod["metadata"]},
            "spec": pod["spec"],
        },
        dryRun="All",
    )
    assert created["spec"]["priority"] == HIGHEST_PRIORITY
