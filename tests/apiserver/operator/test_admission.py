"""What admission webhooks and policies do to the objects of a job, before a real API server."""

from pathlib import Path
from typing import Any

import pytest

from ddpjob_core.api.errors import NotFound
from ddpjob_core.api.resources import PODS, Resource
from ddpjob_core.engine.protocols import Json
from tests.apiserver.controlplane import ControlPlane
from tests.apiserver.stage import Stage, all_run, set_stage, until
from tests.apiserver.webhook import mutating_webhook

pytestmark = pytest.mark.timeout(240)

GROUP = "/apis/admissionregistration.k8s.io/v1"
WEBHOOKS = Resource(GROUP, "validatingwebhookconfigurations")
MUTATIONS = Resource(GROUP, "mutatingwebhookconfigurations")
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


async def test_a_pod_that_a_webhook_has_changed_is_reported_and_not_left_to_run(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    changes = {
        "restarted": [{"op": "replace", "path": "/spec/restartPolicy", "value": "Always"}],
        "unlabelled": [{"op": "remove", "path": "/metadata/labels/ddpjob.dev~1uid"}],
        "renamed": [{"op": "replace", "path": "/metadata/name", "value": "team-x"}],
        "joined": [{"op": "add", "path": "/spec/containers/-", "value": {"name": "istio-proxy", "image": "i"}}],
    }
    in_words = {
        "restarted": "spec.restartPolicy from Never to Always",
        "unlabelled": "metadata.labels[ddpjob.dev/uid]",
        "renamed": "metadata.name from renamed-a0-0 to team-x",
    }

    def change(pod: Json) -> list[Json]:
        return changes[pod["metadata"]["labels"]["ddpjob.dev/job"]]

    async with set_stage(control_plane, tmp_path) as stage, mutating_webhook(tmp_path, change) as address:
        webhook = _webhook(stage, address, {"matchExpressions": [{"key": "ddpjob.dev/job", "operator": "Exists"}]})
        await _create(stage, MUTATIONS, "MutatingWebhookConfiguration", webhooks=[webhook])
        await until("the webhook is asked", lambda: is_asked(stage))
        await stage.operator.start()
        for name in changes:
            await stage.create(name, nodes=1)
        for name, words in in_words.items():
            await until(
                f"{name} is reported", lambda name=name, words=words: is_reported(stage, name, "Altered", words)
            )
        await until("joined runs", lambda: all_run(stage, "joined", 1))
        await until("what was added is named", lambda: is_reported(stage, "joined", "AllPodsScheduled", "istio-proxy"))
        assert [pod["metadata"]["name"] for pod in await stage.admin.all(PODS, stage.namespace)] == ["joined-a0-0"]
        await _remove(stage, MUTATIONS)
        for name in in_words:
            await until(f"{name} runs", lambda name=name: all_run(stage, name, 1))
            assert (await stage.status(name))["restarts"]["counted"] == 0


async def is_asked(stage: Stage) -> bool:
    """Whether the API server asks the webhook already."""
    metadata = {"name": "probe", "namespace": stage.namespace, "labels": {"ddpjob.dev/job": "joined"}}
    pod = {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    answer = await stage.admin.ask("POST", f"/api/v1/namespaces/{stage.namespace}/pods?dryRun=All", pod)
    return len(answer["spec"]["containers"]) == 2


async def fail_for(stage: Stage, job: str) -> None:
    """Have the API server ask a webhook that does not answer about each pod of a job."""
    webhook = _webhook(stage, {"url": NOBODY}, {"matchLabels": {"ddpjob.dev/job": job}})
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
        await _remove(stage, resource)


async def is_reported(stage: Stage, name: str, reason: str, words: str) -> bool:
    """Whether the condition PodsScheduled of a job is False for this reason, in these words."""
    try:
        conditions: list[Json] = (await stage.status(name)).get("conditions", [])
    except NotFound:
        return False
    return any(
        each["type"] == "PodsScheduled" and each["reason"] == reason and words in each["message"] for each in conditions
    )


def _webhook(stage: Stage, address: Json, selector: Json) -> Json:
    return {
        "name": "webhook.example.com",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 5,
        "clientConfig": address,
        "namespaceSelector": _only(stage),
        "objectSelector": selector,
        "rules": OF_PODS,
    }


async def _remove(stage: Stage, resource: Resource) -> None:
    await stage.admin.ask("DELETE", f"{GROUP}/{resource.plural}/{stage.namespace}", {})


def _only(stage: Stage) -> Json:
    return {"matchLabels": {"kubernetes.io/metadata.name": stage.namespace}}


async def _create(stage: Stage, resource: Resource, kind: str, **fields: Any) -> None:
    raw = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": stage.namespace}}
    await stage.admin.ask("POST", f"{GROUP}/{resource.plural}", {**raw, **fields})
