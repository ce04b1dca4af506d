"""The operator's permissions, compared with what the API server's audit log says it used."""

import json
import os
from datetime import datetime
from pathlib import Path

import pytest
from kubectl import Kubectl

from hack.cluster.deploy import NAMESPACE as OPERATOR_NAMESPACE

OPERATOR = f"system:serviceaccount:{OPERATOR_NAMESPACE}:ddpjob-operator"
# Every kubelet and client may ask these; they are granted to all by system:discovery.
PUBLIC_PATHS = ("/version", "/api", "/apis", "/healthz", "/livez", "/readyz", "/openapi")


def granted(kubectl: Kubectl) -> set[tuple[str, str, str]]:
    roles = (kubectl.get("clusterrole", "ddpjob-operator"), Kubectl(OPERATOR_NAMESPACE).get("role", "ddpjob-operator"))
    return {
        (verb, group, resource)
        for role in roles
        if role is not None
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def used(log: Path, since: datetime) -> tuple[set[tuple[str, str, str]], set[tuple[str, str, str]]]:
    """What the operator asked for, and what of it was refused for a missing permission."""
    asked: set[tuple[str, str, str]] = set()
    refused: set[tuple[str, str, str]] = set()
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        if entry["user"].get("username") != OPERATOR or entry["stage"] not in ("ResponseComplete", "ResponseStarted"):
            continue
        if datetime.fromisoformat(entry["requestReceivedTimestamp"]) < since:
            continue
        reference = entry.get("objectRef")
        if reference is None or "resource" not in reference:
            assert entry["requestURI"].startswith(PUBLIC_PATHS), entry["requestURI"]
            continue
        name = "/".join(part for part in (reference["resource"], reference.get("subresource")) if part)
        what = (entry["verb"], reference.get("apiGroup", ""), name)
        asked.add(what)
        decision = entry.get("annotations", {}).get("authorization.k8s.io/decision")
        if decision == "forbid":
            refused.add(what)
    return asked, refused


@pytest.mark.alone
@pytest.mark.skipif("DDPJOB_AUDIT_LOG" not in os.environ, reason="the audit log of this cluster cannot be read")
def test_the_operator_has_exactly_the_permissions_that_it_uses(kubectl: Kubectl, operator: datetime) -> None:
    asked, refused = used(Path(os.environ["DDPJOB_AUDIT_LOG"]), operator)
    # What is granted now was refused while a test changed between operators with and without --network-policies.
    assert refused - granted(kubectl) == set()
    assert asked - granted(kubectl) == set()
    assert granted(kubectl) - asked == set(), "granted, but used in none of the tests that ran before this one"
