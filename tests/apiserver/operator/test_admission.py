"""What admission webhooks and policies do to the objects of a job, before a real API server."""

from pathlib import Path
from typing import Any

import pytest

from ddpjob_core.api.errors import NotFound
from ddpjob_core.api.resources import Resource
from ddpjob_core.engine.protocols import Json
from tests.apiserver.controlplane import ControlPlane
from tests.apiserver.stage import Stage, all_run, set_stage, until

pytestmark = pytest.mark.timeout(240)

GROUP = "/apis/admissionregistration.k8s.io/v1"
WEBHOOKS = Resource(GROUP, "validatingwebhookconfigurations")
POLICIES = Resource(GROUP, "validatingadmissionpolicies")
BINDINGS = Resource(GROUP, "validatingadmissionpolicybindings")
NOBODY = "https://127.0.0.1:1/"
"""Where no webhook listens."""
OF_PODS = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]


async def test_a_webhook_that_fails_and_a_policy_that_denies_are_reported_and_waited_for_alike(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with set_stage(control_plane, tmp_path) as stage:
        await fail_for(stage, "hooked")
        await deny_for(stage, "denied")
        await until("both are in force", lambda: in_force(stage))
        await stage.operator.start()
        for name in ("hooked", "denied"):
            await stage.create(name, nodes=2)
        await until(
            "the webhook is named", lambda: is_reported(stage, "hooked", "Unavailable", "failed calling webhook")
        )
        await until("the policy is named", lambda: is_reported(stage, "denied", "Forbidden", "no such team"))
        for name in ("hooked", "denied"):
            assert not await stage.pods(name)
        await lift(stage)
        for name in ("hooked", "denied"):
            await until(f"{name} runs", lambda name=name: all_run(stage, name, 2))
            assert (await stage.status(name))["restarts"]["counted"] == 0


async def fail_for(stage: Stage, job: str) -> None:
    """Have the API server ask a webhook that does not answer about each pod of a job."""
    webhook = {
        "name": "absent.example.com",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
        "clientConfig": {"url": NOBODY},
        "namespaceSelector": _only(stage),
        "objectSelector": {"matchLabels": {"ddpjob.dev/job": job}},
        "rules": OF_PODS,
    }
    await _create(stage, WEBHOOKS, "ValidatingWebhookConfiguration", webhooks=[webhook])


async def deny_for(stage: Stage, job: str) -> None:
    """Have a policy deny each pod of a job."""
    policy = {
        "matchConstraints": {"namespaceSelector": _only(stage), "resourceRules": OF_PODS},
        "validations": [
            {"expression": f"object.metadata.labels['ddpjob.dev/job'] != '{job}'", "message": "no such team"}
        ],
    }
    await _create(stage, POLICIES, "ValidatingAdmissionPolicy", spec=policy)
    binding = {"policyName": stage.namespace, "validationActions": ["Deny"]}
    await _create(stage, BINDINGS, "ValidatingAdmissionPolicyBinding", spec=binding)


async def in_force(stage: Stage) -> bool:
    """Whether the API server follows both: it takes a moment to notice them."""
    found = [await _refused(stage, job) for job in ("hooked", "denied")]
    return "failed calling webhook" in found[0] and "no such team" in found[1]


async def _refused(stage: Stage, job: str) -> str:
    metadata = {"name": "probe", "namespace": stage.namespace, "labels": {"ddpjob.dev/job": job}}
    pod = {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    answer = await stage.admin.ask("POST", f"/api/v1/namespaces/{stage.namespace}/pods?dryRun=All", pod)
    return str(answer.get("message", ""))


async def lift(stage: Stage) -> None:
    """Take webhook and policy away."""
    for resource in (WEBHOOKS, BINDINGS, POLICIES):
        found = await stage.admin.ask("GET", f"{GROUP}/{resource.plural}/{stage.namespace}", None)
        uid = found["metadata"]["uid"]
        await stage.admin.ask("DELETE", f"{GROUP}/{resource.plural}/{stage.namespace}", {"preconditions": {"uid": uid}})


async def is_reported(stage: Stage, name: str, reason: str, words: str) -> bool:
    """Whether the condition PodsScheduled of a job is False for this reason, in these words."""
    try:
        conditions: list[Json] = (await stage.status(name)).get("conditions", [])
    except NotFound:
        return False
    return any(
        each["type"] == "PodsScheduled" and each["reason"] == reason and words in each["message"] for each in conditions
    )


def _only(stage: Stage) -> Json:
    return {"matchLabels": {"kubernetes.io/metadata.name": stage.namespace}}


async def _create(stage: Stage, resource: Resource, kind: str, **fields: Any) -> None:
    raw = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": stage.namespace}}
    await stage.admin.ask("POST", f"{GROUP}/{resource.plural}", {**raw, **fields})
