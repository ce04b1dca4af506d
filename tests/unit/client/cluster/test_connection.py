"""Which cluster a command talks to: $KUBECONFIG, else ~/.kube/config, else the pod that it runs in."""

from pathlib import Path

import pytest
import yaml
from kubernetes.config import incluster_config

from ddpjob.cluster import connection
from ddpjob.cluster.connection import Target, open_cluster
from ddpjob_core.api.errors import Unavailable


def write_kubeconfig(path: Path, server: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    config = {
        "clusters": [{"name": "c", "cluster": {"server": f"https://{server}"}}],
        "contexts": [context],
        "users": [{"name": "u", "user": {}}],
        "current-context": "c",
    }
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture
def in_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pod with a service account; its home folder."""
    account, home = tmp_path / "account", tmp_path / "home"
    account.mkdir()
    home.mkdir()
    for name, content in (("token", "t"), ("ca.crt", "c"), ("namespace", "team")):
        (account / name).write_text(content)
    monkeypatch.setattr(connection, "_ACCOUNT", account)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(account / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(account / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "service")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return home


@pytest.mark.parametrize(
    ("there", "server"),
    [
        (set(), "https://service:443"),
        ({"home"}, "https://home"),
        ({"variable"}, "https://variable"),
        ({"home", "variable"}, "https://variable"),
        ({"home", "variable", "option"}, "https://option"),
    ],
)
def test_the_service_account_of_a_pod_is_used_only_where_no_kubeconfig_is_there(
    in_a_pod: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, there: set[str], server: str
) -> None:
    # The certificate is none, and nobody is asked.
    monkeypatch.setattr(connection, "ApiClient", lambda configuration: configuration)
    if "home" in there:
        write_kubeconfig(in_a_pod / ".kube/config", "home")
    if "variable" in there:
        monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path / "variable", "variable")))
    option = str(write_kubeconfig(tmp_path / "option", "option")) if "option" in there else None
    cluster = open_cluster(Target(kubeconfig=option))
    assert cluster.server == server
    assert cluster.namespace == ("team" if not there else "default")


@pytest.mark.parametrize(("named", "context"), [("nowhere", None), (None, "c")])
def test_in_a_pod_too_a_kubeconfig_that_was_asked_for_and_does_not_exist_is_reported(
    in_a_pod: Path, monkeypatch: pytest.MonkeyPatch, named: str | None, context: str | None
) -> None:
    if named is not None:
        monkeypatch.setenv("KUBECONFIG", str(in_a_pod / named))
    with pytest.raises(Unavailable, match="does not exist"):
        open_cluster(Target(context=context))
