"""What the chart makes of its values, compared with what kustomize makes of the manifests."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml

from ddpjob_core.api.scope import Scope
from tests.apiserver.chart.helm import (
    CHART,
    Helm,
    HelmError,
    comparable,
    key_of,
    kustomized,
    loaded,
)
from tests.apiserver.chart.values import DIGEST, EVERYTHING, MONITORING, ONCE, SELECTOR
from tests.apiserver.controlplane import CRD, Json


@pytest.fixture(scope="session")
def kubectl(assets: Path) -> Path:
    return assets / "kubectl"


def definition() -> Json:
    """That of the manifests, with the label that all objects of the chart have."""
    (made,) = loaded(CRD.read_text())
    made["metadata"]["labels"] = {"app.kubernetes.io/name": "ddpjob-operator"}
    return made


def of_kind(objects: list[Json], kind: str) -> list[Json]:
    return [each for each in objects if each["kind"] == kind]


def pod_spec(objects: list[Json]) -> Json:
    (deployment,) = of_kind(objects, "Deployment")
    spec: Json = deployment["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize(
    ("values", "folder"),
    [
        ({}, "base"),
        ({"replicas": 2}, "overlays/high-availability"),
        ({"operator": {"install": False}}, "overlays/namespaces/cluster"),
        ({"admissionPolicy": {"strictReferences": True}}, "overlays/strict-references"),
        (
            {
                "jobNetworkPolicies": {"install": True, "metricsNamespaces": ["monitoring"]},
                "networkPolicy": {"install": True, "from": [{"podSelector": {}}, MONITORING]},
            },
            "overlays/network-policies",
        ),
        ({"podMonitors": {"install": True}, "prometheusRule": {"install": True}}, "overlays/prometheus-operator"),
    ],
    ids=["base", "high-availability", "cluster", "strict-references", "network-policies", "prometheus-operator"],
)
def test_the_chart_makes_the_same_objects_as_kustomize_except_the_namespace_that_helm_needs_before(
    helm: Helm, kubectl: Path, values: dict[str, Any], folder: str
) -> None:
    built = [each for each in kustomized(kubectl, folder) if each["kind"] != "Namespace"]
    assert comparable(helm.render(values)) == comparable([definition(), *built])


def test_for_a_list_of_namespaces_the_chart_makes_the_same_objects_as_the_overlay(helm: Helm, kubectl: Path) -> None:
    made = helm.render({"namespaces": ["team-a", "team-b"], **ONCE})
    assert comparable(made) == comparable(kustomized(kubectl, "overlays/namespaces"))


def test_the_dashboards_are_in_the_config_map_that_kustomize_makes(helm: Helm, kubectl: Path) -> None:
    made = helm.render({"operator": {"install": False}, "dashboards": {"install": True}, **ONCE})
    (built,) = kustomized(kubectl, "grafana")
    built["metadata"]["labels"]["app.kubernetes.io/name"] = "ddpjob-operator"
    assert comparable(made) == comparable([built])


def test_the_definition_is_kept_by_default_and_not_where_that_is_switched_off(helm: Helm) -> None:
    (kept,) = of_kind(helm.render({}), "CustomResourceDefinition")
    assert kept["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    (given_up,) = of_kind(helm.render({"crd": {"keep": False}}), "CustomResourceDefinition")
    assert "annotations" not in given_up["metadata"]


def test_releases_have_no_object_in_common_except_what_a_cluster_has_once(helm: Helm) -> None:
    alone = {**ONCE, "replicas": 2, "networkPolicy": {"install": True}, "podMonitors": {"install": True}}
    releases = [
        ("ddpjob", "ddpjob-system", ["team-a"]),
        ("blue", "ddpjob-system", ["team-b"]),
        ("ddpjob", "of-team-c", ["team-c", "team-d"]),
        ("ddpjob", "of-team-e", ["team-e"]),
    ]
    made = [
        helm.render({**alone, "namespaces": namespaces}, release, namespace)
        for release, namespace, namespaces in releases
    ]
    keys = [{key_of(each) for each in objects} for objects in made]
    assert all(one.isdisjoint(other) for one, other in itertools.combinations(keys, 2))
    assert "" not in {namespace for each in keys for _, namespace, _ in each}


def test_no_release_selects_the_pods_of_another_one_in_its_namespace(helm: Helm) -> None:
    values = {"replicas": 2, "networkPolicy": {"install": True}, "podMonitors": {"install": True}}
    made = helm.render(values, "blue")
    blue = {**SELECTOR, "app.kubernetes.io/instance": "blue"}
    (deployment,) = of_kind(made, "Deployment")
    assert deployment["metadata"]["name"] == "ddpjob-operator-blue"
    assert deployment["spec"]["selector"]["matchLabels"] == blue
    assert deployment["spec"]["template"]["metadata"]["labels"] == blue
    (budget,) = of_kind(made, "PodDisruptionBudget")
    assert budget["spec"]["selector"]["matchLabels"] == blue
    (policy,) = of_kind(made, "NetworkPolicy")
    assert policy["spec"]["podSelector"]["matchLabels"] == blue
    assert of_kind(made, "PodMonitor")[0]["spec"]["selector"]["matchLabels"] == blue
    (preferred,) = deployment["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    assert preferred["podAffinityTerm"]["labelSelector"]["matchLabels"] == blue


def test_an_operator_that_serves_the_namespace_of_the_leases_has_one_role_there(helm: Helm) -> None:
    made = helm.render({"namespaces": ["ddpjob-system"], "allowOwnNamespace": True, **ONCE})
    (role,) = of_kind(made, "Role")
    jobs = of_kind(helm.render({}), "ClusterRole")[0]["rules"]
    watching, own = of_kind(helm.render({}), "Role")[0]["rules"]
    assert role["rules"] == [watching, {**own, "resourceNames": ["ddpjob-operator.ddpjob-system"]}, *jobs]


@pytest.mark.parametrize("namespaces", [[], ["team-a"], ["team-b", "team-a"], ["b-1", "b", "a", "b1"]], ids=str)
def test_an_operator_may_take_no_lease_but_its_own(helm: Helm, namespaces: list[str]) -> None:
    roles = of_kind(helm.render({"namespaces": namespaces, **ONCE}, namespace="operators"), "Role")
    rules = [rule for role in roles for rule in role["rules"] if rule["resources"] == ["leases"]]
    changing = [rule for rule in rules if {"get", "update", "patch", "delete"} & set(rule["verbs"])]
    assert [rule.get("resourceNames") for rule in changing] == [[Scope.parse(namespaces).lease]]


def test_no_service_account_of_an_operator_is_where_those_whom_it_serves_create_pods(helm: Helm) -> None:
    values = {"namespaces": ["team-a", "team-b"], **ONCE}
    for kind in ("ServiceAccount", "Deployment"):
        (found,) = of_kind(helm.render(values), kind)
        assert found["metadata"]["namespace"] == "ddpjob-system"
    with pytest.raises(HelmError, match="namespaces has the release's own namespace team-b"):
        helm.render(values, namespace="team-b")
    assert of_kind(helm.render({**values, "allowOwnNamespace": True}, namespace="team-b"), "ServiceAccount")


def test_the_leases_may_be_in_another_namespace(helm: Helm) -> None:
    made = helm.render({"leaseNamespace": "leases", "extraArgs": ["--workers=8"]})
    assert pod_spec(made)["containers"][0]["args"] == ["--lease-namespace=leases", "--workers=8"]
    assert [each["metadata"]["namespace"] for each in of_kind(made, "Role")] == ["leases"]


@pytest.mark.parametrize(
    ("image", "written"),
    [
        ({"repository": "registry.example:5000/operator", "tag": "1"}, "registry.example:5000/operator:1"),
        ({"tag": "", "digest": DIGEST}, f"ddpjob-operator@{DIGEST}"),
        ({"tag": "1", "digest": DIGEST}, f"ddpjob-operator:1@{DIGEST}"),
    ],
)
def test_the_image_has_a_tag_or_a_digest_or_both(helm: Helm, image: dict[str, str], written: str) -> None:
    assert pod_spec(helm.render({"image": image}))["containers"][0]["image"] == written


def test_every_value_is_where_kubernetes_looks_for_it(helm: Helm) -> None:
    made = helm.render(EVERYTHING)
    spec = pod_spec(made)
    for name in ("imagePullSecrets", "nodeSelector", "tolerations", "affinity"):
        assert spec[name] == EVERYTHING[name]
    (constraint,) = spec["topologySpreadConstraints"]
    spread = EVERYTHING["topologySpreadConstraints"][0]
    assert constraint == {**spread, "labelSelector": {"matchLabels": SELECTOR}}
    (container,) = spec["containers"]
    assert container["image"] == f"registry.example/team/ddpjob-operator:1.2.3@{DIGEST}"
    flags = ["--network-policies", "--metrics-namespace=monitoring", "--metrics-namespace=1"]
    assert container["args"] == [*flags, *EVERYTHING["extraArgs"]]
    assert container["resources"] == EVERYTHING["resources"]
    template = of_kind(made, "Deployment")[0]["spec"]["template"]["metadata"]
    assert template == {"labels": {**SELECTOR, "team": "ml"}, "annotations": EVERYTHING["podAnnotations"]}
    (account,) = of_kind(made, "ServiceAccount")
    assert account["metadata"]["annotations"] == EVERYTHING["serviceAccount"]["annotations"]
    subjects = [
        each["subjects"][0]["name"] for kind in ("RoleBinding", "ClusterRoleBinding") for each in of_kind(made, kind)
    ]
    assert {account["metadata"]["name"], spec["serviceAccountName"], *subjects} == {"trainer-of-trainers"}
    assert spec["priorityClassName"] == of_kind(made, "PriorityClass")[0]["metadata"]["name"] == "urgent"
    # Training pods may no more have that class than the usual one.
    (policy,) = of_kind(made, "ValidatingAdmissionPolicy")
    assert "priorityClassName == 'urgent'" in yaml.safe_dump(policy, width=10_000)
    (network,) = of_kind(made, "NetworkPolicy")
    assert network["spec"]["ingress"] == [
        {"from": EVERYTHING["networkPolicy"]["from"], "ports": [{"port": "http", "protocol": "TCP"}]}
    ]
    for kind in ("PodMonitor", "PrometheusRule"):
        assert all(each["metadata"]["labels"]["release"] == "prometheus" for each in of_kind(made, kind))
    assert of_kind(made, "ConfigMap")[0]["metadata"]["labels"]["dashboards"] == "yes"


def test_names_that_are_numbers_stay_text(helm: Helm) -> None:
    values = {
        "namespaces": ["1"],
        "leaseNamespace": "2",
        "priorityClass": {"name": "3"},
        "serviceAccount": {"name": "4"},
    }
    for each in helm.render({**values, "podMonitors": {"install": True}, "replicas": 2}, "5", "6"):
        metadata = each["metadata"]
        texts = [metadata["name"], *metadata["labels"].values(), metadata.get("namespace", "")]
        texts += [text for subject in each.get("subjects", ()) for text in subject.values()]
        if each["kind"] == "Deployment":
            pod = each["spec"]["template"]["spec"]
            texts += [pod["priorityClassName"], pod["serviceAccountName"], *pod["containers"][0]["args"]]
        assert all(isinstance(text, str) for text in texts), each


def test_permissions_and_the_service_account_may_be_left_to_others(helm: Helm) -> None:
    made = helm.render({"rbac": {"install": False}, "serviceAccount": {"install": False, "name": "ours"}, **ONCE})
    assert [each["kind"] for each in made] == ["Deployment"]
    assert pod_spec(made)["serviceAccountName"] == "ours"


def test_training_pods_are_scraped_in_the_namespaces_that_are_served(helm: Helm) -> None:
    made = helm.render({"namespaces": ["team-a"], "podMonitors": {"install": True}})
    assert of_kind(made, "PodMonitor")[1]["spec"]["namespaceSelector"] == {"matchNames": ["team-a"]}


def test_an_operator_of_some_namespaces_may_make_network_policies_there_and_not_elsewhere(helm: Helm) -> None:
    isolating = {"jobNetworkPolicies": {"install": True}, "allowOwnNamespace": True, **ONCE}
    for values, kinds in (({}, ["ClusterRole"]), ({"namespaces": ["team-a", "ddpjob-system"]}, ["Role", "Role"])):
        made = helm.render({**isolating, **values})
        allowed = [each for each in made if "networkpolicies" in yaml.safe_dump(each.get("rules"))]
        assert [each["kind"] for each in allowed] == kinds
        assert pod_spec(made)["containers"][0]["args"][-1] == "--network-policies"


def test_a_network_policy_without_peers_lets_nobody_in(helm: Helm) -> None:
    (policy,) = of_kind(helm.render({"networkPolicy": {"install": True}}), "NetworkPolicy")
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert policy["spec"]["ingress"] == []


@pytest.mark.parametrize("values", [EVERYTHING, {"namespaces": ["team-a"], **ONCE}], ids=["all", "namespaces"])
def test_the_chart_passes_the_strict_linter(helm: Helm, values: dict[str, Any]) -> None:
    assert "0 chart(s) failed" in helm.run("lint", "--strict", str(CHART), values=values)


# Each in one run of Helm, which names all that is wrong.
WRONG: list[tuple[dict[str, Any], list[str]]] = [
    (
        {
            "replica": 2,
            "replicas": "two",
            "image": {"tagg": "1", "digest": "sha256:123", "pullPolicy": "Sometimes"},
            "namespaces": "team-a",
            "extraArgs": ["--namespace=team-a", "8"],
            "resources": {"request": {"cpu": 1}},
            "podLabels": {"app.kubernetes.io/name": "other"},
            "tolerations": [{"kee": "a"}],
            "affinity": {"nodeAffinities": {}},
            "crd": {"keep": "yes"},
            "networkPolicy": {"from": [{"ips": []}]},
            "leaseNamespace": "",
            "imagePullSecrets": ["registry"],
        },
        [
            "'replica'",
            "'/replicas'",
            "'tagg'",
            "'/image/digest'",
            "'/image/pullPolicy'",
            "'/namespaces'",
            "'/extraArgs/0'",
            "'/extraArgs/1'",
            "'request'",
            "'/podLabels/app.kubernetes.io~1name'",
            "'kee'",
            "'nodeAffinities'",
            "'/crd/keep'",
            "'ips'",
            "'/leaseNamespace'",
            "'/imagePullSecrets/0'",
        ],
    ),
    (
        {
            "replicas": -1,
            "image": {"tag": ""},
            "namespaces": ["team-a", "team-a", "Team_A"],
            "serviceAccount": {"install": False},
            "topologySpreadConstraints": [{"topologyKey": "zone"}],
        },
        [
            "'/replicas'",
            "'/image/tag'",
            "'/namespaces'",
            "'/namespaces/2'",
            "'/serviceAccount/name'",
            "'/topologySpreadConstraints/0'",
        ],
    ),
]


@pytest.mark.parametrize(("values", "named"), WRONG, ids=["unknown", "contradicting"])
def test_wrong_values_are_refused_by_their_names(helm: Helm, values: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(HelmError) as refused:
        helm.run("template", "ddpjob", str(CHART), values=values)
    assert [each for each in named if each not in str(refused.value)] == []


def test_a_chart_that_depends_on_this_one_may_pass_what_is_global(helm: Helm, tmp_path: Path) -> None:
    parent = tmp_path / "platform"
    (parent / "charts").mkdir(parents=True)
    (parent / "charts/ddpjob").symlink_to(CHART)
    (parent / "Chart.yaml").write_text("apiVersion: v2\nname: platform\nversion: 1.0.0\n")
    text = helm.run("template", "ddpjob", str(parent), values={"global": {"region": "eu"}, "ddpjob": {"replicas": 2}})
    assert of_kind(loaded(text), "Deployment")[0]["spec"]["replicas"] == 2
