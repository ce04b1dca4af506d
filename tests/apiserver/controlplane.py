"""A real control plane without nodes: etcd, kube-apiserver and, where asked for, kube-controller-manager.

They run as processes on loopback, from a folder of programs as KUBEBUILDER_ASSETS names it. Nothing needs root, an
engine or a network, and nothing is left behind.
"""

import base64
import contextlib
import functools
import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self, TypeAlias, TypeVar
from urllib.parse import urlencode

import yaml

from tests.ports import free_port, free_ports

Json: TypeAlias = dict[str, Any]
T = TypeVar("T")

ROOT: Final = Path(__file__).resolve().parents[2]
CRD: Final = ROOT / "manifests/crd/ddpjobs.yaml"
BASE: Final = ROOT / "manifests/base"
NAMESPACE: Final = "ddpjob-system"
SERVICE_ACCOUNT: Final = "ddpjob-operator"
OPERATOR_USER: Final = f"system:serviceaccount:{NAMESPACE}:{SERVICE_ACCOUNT}"

SERVICE_RANGE: Final = "10.96.0.0/16"
"""Of the addresses of services, where a test asks for no other."""
_ADMIN: Final = "admin"
_CERTIFICATE: Final = "certificates/apiserver.crt"
_JOBS: Final = "/apis/ddpjob.dev/v1alpha1/ddpjobs"
_STARTS: Final = 3
_READY_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05
# What the tests need; more would act on pods whose nodes do not exist.
_CONTROLLERS: Final = (
    "garbage-collector-controller",
    "namespace-controller",
    "persistentvolumeclaim-protection-controller",
    "resourcequota-controller",
)
_AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


class ApiError(Exception):
    """The API server refused a request; the message is its own."""

    def __init__(self, code: int, status: Json) -> None:
        super().__init__(f"{code}: {status.get('message', status)}")
        self.code = code
        self.status = status
        self.reason = str(status.get("reason", ""))
        self.message = str(status.get("message", ""))


class ControlPlaneError(Exception):
    """The control plane cannot be started; the message holds the end of the log."""


def wait_for(look: Callable[[], T | None], what: str, seconds: float = 20.0) -> T:
    """The first true answer of `look`; an AssertionError once the deadline has passed."""
    deadline = time.monotonic() + seconds
    while True:
        answer = look()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        time.sleep(_POLL_SECONDS)


@dataclass(frozen=True)
class Client:
    """One user's raw requests. Each has a connection of its own, so threads may share a client."""

    port: int
    ca: Path
    token: str

    def request(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout: float = 30.0,
    ) -> Json:
        """The answer, or an `ApiError`; an `OSError` where there is none.

        A server that refuses a request for now, as after a change of a CRD, is asked again, as any client does.
        """
        headers = {"Authorization": f"Bearer {self.token}", "Accept": accept, "Content-Type": content_type}
        address = f"{path}?{urlencode(query)}" if query else path
        text = None if body is None else json.dumps(body)
        deadline = time.monotonic() + timeout
        while True:
            code, answer = self._ask(method, address, text, headers, timeout)
            if code < http.HTTPStatus.BAD_REQUEST:
                return answer
            if code != http.HTTPStatus.TOO_MANY_REQUESTS or time.monotonic() > deadline:
                raise ApiError(code, answer)
            time.sleep(0.1)

    def _ask(
        self, method: str, address: str, text: str | None, headers: dict[str, str], timeout: float
    ) -> tuple[int, Json]:
        context = _trusting(self.ca)
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=timeout)
        try:
            connection.request(method, address, text, headers)
            response = connection.getresponse()
            return response.status, _parse(response.read())
        finally:
            connection.close()

    def get(self, path: str, **query: str) -> Json:
        return self.request("GET", path, query=query)

    def find(self, path: str) -> Json | None:
        """The object, or None where it is not there."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.code == http.HTTPStatus.NOT_FOUND:
                return None
            raise

    def items(self, path: str, **query: str) -> list[Json]:
        found: list[Json] = self.get(path, **query)["items"]
        return found

    def create(self, manifest: Json, *, strict: bool = True, **query: str) -> Json:
        query = {"fieldValidation": "Strict" if strict else "Ignore", **query}
        return self.request("POST", collection_of(manifest), manifest, query=query)

    def replace(self, manifest: Json, *, subresource: str = "") -> Json:
        return self.request("PUT", path_of(manifest) + (f"/{subresource}" if subresource else ""), manifest)

    def patch(self, path: str, change: Json, **query: str) -> Json:
        """A merge patch. Give the path with `/status` to change a status."""
        return self.request("PATCH", path, change, query=query, content_type="application/merge-patch+json")

    def apply(self, manifest: Json) -> Json:
        """A server-side apply."""
        query = {"fieldManager": "tests", "force": "true", "fieldValidation": "Strict"}
        return self.request(
            "PATCH", path_of(manifest), manifest, query=query, content_type="application/apply-patch+yaml"
        )

    def delete(self, path: str, **options: Any) -> Json:
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background", **options}
        return self.request("DELETE", path, body)


@functools.cache
def _trusting(ca: Path) -> ssl.SSLContext:
    """Reading the certificates takes longer than a request."""
    return ssl.create_default_context(cafile=str(ca))


def collection_of(manifest: Json) -> str:
    """URL path of the collection that an object is created in."""
    group = manifest["apiVersion"]
    prefix = f"/apis/{group}" if "/" in group else f"/api/{group}"
    namespace = manifest["metadata"].get("namespace")
    kind = manifest["kind"].lower()
    plural = f"{kind[:-1]}ies" if kind.endswith("cy") else f"{kind}es" if kind.endswith("ss") else f"{kind}s"
    return f"{prefix}/namespaces/{namespace}/{plural}" if namespace else f"{prefix}/{plural}"


def path_of(manifest: Json) -> str:
    """URL path of an object."""
    return f"{collection_of(manifest)}/{manifest['metadata']['name']}"


@dataclass
class ControlPlane:
    """etcd, kube-apiserver and perhaps kube-controller-manager, with the DDPJob API installed."""

    assets: Path
    folder: Path
    port: int
    etcd_port: int
    admin: Client
    controllers: bool
    service_ranges: str = SERVICE_RANGE
    durable: bool = False
    """Whether etcd waits for its disk, as in a cluster."""
    namespaces: str = "test"
    """What the names of its namespaces begin with."""
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _namespaces: int = 0

    @classmethod
    def joined(cls, shared: Json, user: str) -> Self:
        """One that another process has started, and ends.

        Args:
            shared: what that process has of it by `shared`.
            user: makes the names of namespaces its own.
        """
        folder = Path(shared["folder"])
        client = Client(shared["port"], folder / _CERTIFICATE, shared["token"])
        ports = (shared["port"], shared["etcd_port"])
        return cls(Path(shared["assets"]), folder, *ports, client, shared["controllers"], namespaces=f"test-{user}")

    def shared(self) -> Json:
        """What another process needs to use it."""
        return {
            "assets": str(self.assets),
            "folder": str(self.folder),
            "port": self.port,
            "etcd_port": self.etcd_port,
            "token": self.admin.token,
            "controllers": self.controllers,
        }

    @classmethod
    def start(
        cls,
        assets: Path,
        folder: Path,
        *,
        controllers: bool = False,
        service_ranges: str = "",
        durable: bool = False,
        audit_policy: Json | None = None,
    ) -> Self:
        """Start it and install the CRD and the operator's permissions.

        Args:
            assets: folder with etcd, kube-apiserver and kube-controller-manager.
            folder: an empty one for data, logs, keys; its user removes it.
            controllers: whether objects are collected with their owner and namespaces can go.
            service_ranges: of the addresses of services, one for each family; IPv4 alone where it is left out.
            durable: whether etcd waits for its disk at each write.
            audit_policy: what is written into the audit log; the metadata of every request where it is left out.

        Raises:
            ControlPlaneError: a program is missing or does not become ready.
        """
        wanted = ["etcd", "kube-apiserver", *(["kube-controller-manager"] if controllers else [])]
        missing = [name for name in wanted if not os.access(assets / name, os.X_OK)]
        if missing:
            raise ControlPlaneError(f"{assets} has no {', '.join(missing)}")
        for attempt in range(1, _STARTS + 1):
            plane = cls._prepare(assets, folder / f"try-{attempt}", controllers=controllers)
            plane.service_ranges = service_ranges or plane.service_ranges
            plane.durable = durable
            if audit_policy:
                plane.audit_policy.write_text(yaml.safe_dump(audit_policy))
            try:
                plane._start_all()
            except BaseException as error:
                plane.stop()
                # Between choosing a free port and listening on it, another process may have taken it.
                if attempt == _STARTS or "address already in use" not in str(error):
                    raise
            else:
                return plane
        raise AssertionError("unreachable")

    @classmethod
    def _prepare(cls, assets: Path, folder: Path, *, controllers: bool) -> Self:
        folder.mkdir(parents=True)
        token = secrets.token_hex(16)
        (folder / "tokens.csv").write_text(f'{token},{_ADMIN},{_ADMIN},"system:masters"\n')
        (folder / "accounts.key").write_text(_new_key())
        etcd_port, peer_port, port = free_ports(3)
        (folder / "peer-port").write_text(str(peer_port))
        client = Client(port, folder / _CERTIFICATE, token)
        plane = cls(assets, folder, port, etcd_port, client, controllers)
        plane.audit_policy.write_text(yaml.safe_dump(_AUDIT_POLICY))
        return plane

    def _start_all(self) -> None:
        self._start_etcd()
        self.start_api_server()
        _write_kubeconfig(self.admin_kubeconfig, self.url, self.admin)
        self.install()
        if self.controllers:
            # Last: its garbage collector looks for new kinds of objects every 30 s only.
            self.start_controllers()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def admin_kubeconfig(self) -> Path:
        return self.folder / "admin.kubeconfig"

    @property
    def operator_kubeconfig(self) -> Path:
        """The operator's service account, with the permissions of manifests/base, those on Leases for all of them: each
        test has an operator of its own namespace.
        """
        return self.folder / "operator.kubeconfig"

    def new_user(self, namespace: str) -> Path:
        """The kubeconfig of a service account of a namespace without any permission."""
        name, kubeconfig = "nobody", self.folder / f"{namespace}.kubeconfig"
        self.admin.create(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}
        )
        _write_kubeconfig(kubeconfig, self.url, self.sign_in(namespace, name))
        return kubeconfig

    @property
    def audit_policy(self) -> Path:
        return self.folder / "audit.yaml"

    @property
    def audit_log(self) -> Path:
        """One JSON object a line for each request that the policy names, at level Metadata by default."""
        return self.folder / "audit.log"

    def audit(self, namespace: str, user: str | None = OPERATOR_USER, after: int = 0) -> list[Json]:
        """The finished requests of a user (None: of all), from an offset in the log on (see `audit_size`).

        Of one namespace, or with "" those to no namespace: other tests use the same control plane.
        """
        with self.audit_log.open("rb") as log:
            log.seek(after)
            lines = log.read().split(b"\n")[:-1]
        entries = (json.loads(line) for line in lines)
        mine = [entry for entry in entries if entry.get("objectRef", {}).get("namespace", "") == namespace]
        return [entry for entry in mine if user is None or entry["user"].get("username") == user]

    @property
    def audit_size(self) -> int:
        return self.audit_log.stat().st_size

    def new_namespace(self) -> str:
        """The name of a namespace that no other test has."""
        self._namespaces += 1
        name = f"{self.namespaces}-{self._namespaces}"
        self.admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        return name

    def pause(self, name: str = "kube-apiserver") -> None:
        """Stop the process where it stands: connections stay open and silent."""
        self._processes[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str = "kube-apiserver") -> None:
        self._processes[name].send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def paused(self, name: str = "kube-apiserver") -> Iterator[None]:
        self.pause(name)
        try:
            yield
        finally:
            self.resume(name)

    def kill(self, name: str = "kube-apiserver") -> None:
        """End the process at once: all connections are cut. Start it again with `start_api_server`."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def is_well(self) -> bool:
        """Whether all of it runs, and the API server soon answers what it is asked for jobs."""
        wanted = {"etcd", "kube-apiserver"} | ({"kube-controller-manager"} if self.controllers else set())
        runs = {name for name, process in self._processes.items() if process.poll() is None}
        try:
            # After a start it is ready before the storage of custom resources is.
            return wanted <= runs and wait_for(lambda: self._answers(_JOBS), "the DDPJob API to be served")
        except AssertionError:
            return False

    def compact(self) -> int:
        """Forget etcd's history up to now; returns the revision.

        The API server still answers from its own cache. After `kill` and `start_api_server` that is empty too, and a
        watch from an older resource version is answered by 410.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.etcd_port, timeout=10)
        try:
            connection.request("POST", "/v3/kv/range", json.dumps({"key": _encode("/registry")}))
            revision = int(json.loads(connection.getresponse().read())["header"]["revision"])
            connection.request("POST", "/v3/kv/compaction", json.dumps({"revision": revision, "physical": True}))
            connection.getresponse().read()
        finally:
            connection.close()
        return revision

    def stop(self) -> None:
        """End all processes."""
        for process in self._processes.values():
            # etcd first would keep the API server from ending for a minute; nothing here is worth being flushed.
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._processes.clear()

    def start_api_server(self) -> None:
        """Start kube-apiserver, or start it again after `kill`, and wait until it is ready."""
        folder = self.folder
        self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
            f"--secure-port={self.port}",
            "--bind-address=127.0.0.1",
            # Of the family that services have first, else it refuses to start.
            f"--advertise-address={'::1' if ':' in self.service_ranges.partition(',')[0] else '127.0.0.1'}",
            "--endpoint-reconciler-type=none",
            f"--cert-dir={folder / 'certificates'}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder / 'accounts.key'}",
            f"--service-account-signing-key-file={folder / 'accounts.key'}",
            f"--service-cluster-ip-range={self.service_ranges}",
            # Nobody makes a `default` service account in each namespace.
            "--disable-admission-plugins=ServiceAccount",
            f"--audit-policy-file={self.audit_policy}",
            f"--audit-log-path={self.audit_log}",
            "--etcd-compaction-interval=0",
            "--profiling=false",
        )
        self._wait("kube-apiserver", lambda: self._answers("/readyz"))

    def start_controllers(self, controllers: Iterable[str] = _CONTROLLERS, *options: str) -> None:
        """Start kube-controller-manager, or start it again after `kill`, and wait until it is ready.

        Args:
            controllers: which of its controllers.
            options: more of its options.
        """
        port = free_port()
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={self.admin_kubeconfig}",
            f"--authentication-kubeconfig={self.admin_kubeconfig}",
            f"--authorization-kubeconfig={self.admin_kubeconfig}",
            f"--cert-dir={self.folder / 'controllers'}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            "--leader-elect=false",
            f"--controllers={','.join(controllers)}",
            "--concurrent-gc-syncs=4",
            *options,
        )
        address = ("127.0.0.1", port)
        self._wait("kube-controller-manager", lambda: _listens(address))

    def start_scheduler(self) -> None:
        """Start kube-scheduler; `kill` ends it."""
        self._run(
            "kube-scheduler",
            f"--kubeconfig={self.admin_kubeconfig}",
            f"--authentication-kubeconfig={self.admin_kubeconfig}",
            f"--authorization-kubeconfig={self.admin_kubeconfig}",
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=500",
            "--kube-api-burst=500",
        )

    def process_id(self, name: str) -> int:
        """Of one of its programs."""
        return self._processes[name].pid

    def admit_node(self, name: str) -> None:
        """Let pods onto a ready node: the node lifecycle controller, which would see that it is, does not run here."""
        self.admin.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})

    def _start_etcd(self) -> None:
        peers = f"http://127.0.0.1:{(self.folder / 'peer-port').read_text()}"
        clients = f"http://127.0.0.1:{self.etcd_port}"
        self._run(
            "etcd",
            f"--data-dir={self.folder / 'data'}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            # 10,000 fuzzed jobs with all their versions are more than its default of 2 GiB.
            f"--quota-backend-bytes={8 * 2**30}",
            # The data of tests need not outlive the machine's next loss of power.
            *(() if self.durable else ("--unsafe-no-fsync",)),
        )
        self._wait("etcd", lambda: _listens(("127.0.0.1", self.etcd_port)))

    def _run(self, name: str, *arguments: str) -> None:
        command = [str(self.assets / name), *arguments]
        if shutil.which("setpriv"):
            # A test run that is killed takes its processes along.
            command = ["setpriv", "--pdeathsig=KILL", *command]
        with self._log(name).open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, start_new_session=True
            )

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _wait(self, name: str, look: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while not look():
            ended = self._processes[name].poll() is not None
            if ended or time.monotonic() > deadline:
                tail = "\n".join(self._log(name).read_text(errors="replace").splitlines()[-20:])
                raise ControlPlaneError(f"{name} {'has ended' if ended else 'does not become ready'}:\n{tail}")
            time.sleep(_POLL_SECONDS)

    def _answers(self, path: str) -> bool:
        try:
            self.admin.request("GET", path, timeout=5.0)
        except (OSError, http.client.HTTPException, ApiError):
            return False
        return True

    def install(self) -> None:
        """Install the CRD and the operator's permissions, as `start` does."""
        for manifest in _installed():
            self.admin.apply(manifest)
        wait_for(lambda: self._answers(_JOBS), "the DDPJob API to be served")
        self.sign_in_operator()

    def sign_in_operator(self) -> None:
        """Write the kubeconfig of the operator, whose service account `install` need not have created."""
        _write_kubeconfig(self.operator_kubeconfig, self.url, self.sign_in(NAMESPACE, SERVICE_ACCOUNT))

    def uninstall(self) -> None:
        """Delete what `install` made, and with it all jobs; the namespace stays, since nothing here empties one."""
        made = [path_of(manifest) for manifest in _installed() if manifest["kind"] != "Namespace"]
        for path in made:
            if self.admin.find(path):
                self.admin.delete(path)
        wait_for(lambda: not any(map(self.admin.find, made)), "the DDPJob API to be gone")

    def sign_in(self, namespace: str, account: str) -> Client:
        """What a service account may do."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 86400},
        }
        token = self.admin.request("POST", path, request)["status"]["token"]
        return Client(self.port, self.admin.ca, token)


def _installed() -> Iterator[Json]:
    """Without what runs pods, and what only kustomize reads, which have no use here. Roles are of any names."""
    manifests = _manifests(CRD, *sorted(BASE.glob("*.yaml")))
    for each in manifests:
        for rule in each["rules"] if each["kind"] == "Role" else ():
            rule.pop("resourceNames", None)
        if each["kind"] not in ("Deployment", "Kustomization"):
            yield each


def _manifests(*files: Path) -> Iterator[Json]:
    documents: Iterable[Json | None] = (each for file in files for each in yaml.safe_load_all(file.read_text()))
    # A namespace comes before what lives in it.
    yield from sorted((each for each in documents if each), key=lambda each: each["kind"] != "Namespace")


def _write_kubeconfig(path: Path, url: str, client: Client) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tests", "cluster": {"server": url, "certificate-authority": str(client.ca)}}],
        "users": [{"name": path.stem, "user": {"token": client.token}}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": path.stem}}],
        "current-context": "tests",
    }
    path.write_text(yaml.safe_dump(config))


def _new_key() -> str:
    """A private key on the curve P-256 (RFC 5915): any number below the curve's order is one."""
    head, curve = bytes.fromhex("30310201010420"), bytes.fromhex("a00a06082a8648ce3d030107")
    # The first byte keeps it below the order.
    key = head + b"\x01" + secrets.token_bytes(31) + curve
    body = base64.encodebytes(key).decode()
    return f"-----BEGIN EC PRIVATE KEY-----\n{body}-----END EC PRIVATE KEY-----\n"


def _listens(address: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(address, timeout=1):
            return True
    except OSError:
        return False


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _parse(text: bytes) -> Json:
    try:
        answer = json.loads(text)
    except ValueError:
        return {"message": text.decode(errors="replace")}
    return answer if isinstance(answer, dict) else {"items": answer}
