"""The operator that the tests share, as its pods show it."""

from kubectl import Kubectl

from hack.cluster.deploy import NAMESPACE as OPERATOR_NAMESPACE


def operator_pods() -> list[tuple[str, int]]:
    """Uid and number of restarts of each of its pods."""
    pods = Kubectl(OPERATOR_NAMESPACE).list("pods", "app.kubernetes.io/name=ddpjob-operator")
    return [(pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"]) for pod in pods]
