"""Values of the chart, as users may set them."""

from collections.abc import Mapping
from typing import Any, Final

ONCE: Final[Mapping[str, Any]] = {
    "crd": {"install": False},
    "admissionPolicy": {"install": False},
    "priorityClass": {"install": False},
}
"""The values of a release that leaves what a cluster has once to another one."""
SELECTOR: Final = {"app.kubernetes.io/name": "ddpjob-operator", "app.kubernetes.io/instance": "ddpjob"}
DIGEST: Final = f"sha256:{'0123456789abcdef' * 4}"
MONITORING: Final = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
EVERYTHING: Final[Mapping[str, Any]] = {
    "replicas": 3,
    "image": {"repository": "registry.example/team/ddpjob-operator", "tag": "1.2.3", "digest": DIGEST},
    "imagePullSecrets": [{"name": "registry"}],
    "extraArgs": ["--workers=8", "--log-format=json"],
    "resources": {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
    "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
    "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": SELECTOR}}
            ]
        }
    },
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "podLabels": {"team": "ml"},
    "podAnnotations": {"example.com/checked": "true"},
    "serviceAccount": {"name": "trainer-of-trainers", "annotations": {"example.com/role": "operator"}},
    "priorityClass": {"name": "urgent"},
    "crd": {"keep": False},
    "podMonitors": {"install": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"install": True, "labels": {"release": "prometheus"}},
    "dashboards": {"install": True, "labels": {"dashboards": "yes"}},
    "jobNetworkPolicies": {"install": True, "metricsNamespaces": ["monitoring", "1"]},
    "networkPolicy": {
        "install": True,
        "from": [MONITORING],
    },
}
"""Each value that is a setting of its own, and none as it is by default."""
