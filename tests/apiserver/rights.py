"""What users of a namespace may do."""

from tests.apiserver.controlplane import ControlPlane, Json

GROUP = "rbac.authorization.k8s.io"
CREATE_PODS: Json = {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}
CHANGE_JOBS: Json = {"apiGroups": ["ddpjob.dev"], "resources": ["ddpjobs"], "verbs": ["create", "update", "get"]}
READ_JOBS: Json = {"apiGroups": ["ddpjob.dev"], "resources": ["ddpjobs"], "verbs": ["get", "list", "watch"]}
USE_PRIVILEGES: Json = {"apiGroups": ["ddpjob.dev"], "resources": ["ddpjobs/privileged"], "verbs": ["use"]}


def grant(plane: ControlPlane, namespace: str, account: str, *rules: Json, role: str = "", home: str = "") -> None:
    """Give a service account a Role.

    Args:
        plane: where.
        namespace: of the Role.
        account: name of the service account.
        rules: what it grants.
        role: its name, if not that of the account.
        home: namespace of the account, if another one.
    """
    metadata = {"name": role or account, "namespace": namespace}
    plane.admin.create({"apiVersion": f"{GROUP}/v1", "kind": "Role", "metadata": metadata, "rules": list(rules)})
    plane.admin.create(
        {
            "apiVersion": f"{GROUP}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": metadata["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": home or namespace}],
        }
    )
