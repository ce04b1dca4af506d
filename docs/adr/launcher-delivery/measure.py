"""Measure what the launcher costs: its size, the start of a worker, and three ways to bring it into training pods.

    python docs/adr/launcher-delivery/measure.py [--runs 12] [--compare "launcher.py --ddpjob-worker"]
    python docs/adr/launcher-delivery/measure.py --trainer IMAGE --operator IMAGE [--runs 12] [--nodes 4]

The first needs no cluster; `--compare` starts a worker by an older launcher too. The second needs a kind cluster whose
nodes have both images, kubectl, podman or docker (for etcd's certificates) and KUBECONFIG. Runs are interleaved,
medians are printed.
"""
# ruff: noqa: INP001, T201 -- a script that prints

import argparse
import base64
import io
import json
import shlex
import shutil
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

from kubernetes import client, config

from ddpjob_core.api.launchers import Launcher
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.children.launcher_config import launcher_config_name
from ddpjob_core.children.pod import LAUNCHER_FOLDER, LAUNCHER_VOLUME, build_pod
from ddpjob_core.observations.observed import JobRecord
from ddpjob_launcher.archive import FILE, archive, sources

NAMESPACE = "launcher-delivery"
NOW = "import sys, time; print(time.time(), flush=True); sys.exit()\n"
IN_OPERATOR_IMAGE = (
    "from ddpjob_launcher.archive import archive; open('{}/launcher.pyz', 'wb').write(archive('torchrun'))"
)

Objects = list[dict[str, Any]]


def kubectl(*arguments: str) -> str:
    """What kubectl prints."""
    done = subprocess.run(["kubectl", "-n", NAMESPACE, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def timed_archive() -> bytes:
    """The launcher, which prints when it starts instead of launching."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for name, text in sources("torchrun").items():
            packed.writestr(name, NOW if name == "__main__.py" else text)
    return buffer.getvalue()


def pods(name: str, nodes: int, image: str) -> Objects:
    """The pods of a job as the operator makes them, without what would make an operator take them for its own."""
    spec = DDPJobSpec.model_validate({"nodes": nodes, "trainer": {"image": image, "script": "train.py"}})
    job = JobRecord(
        namespace=NAMESPACE, name=name, uid="0" * 36, resource_version="1", generation=1, deleting=False, spec=spec
    )
    made = [build_pod(job, spec, 0, ordinal) for ordinal in range(nodes)]
    for pod in made:
        del pod["metadata"]["ownerReferences"], pod["metadata"]["labels"]
    return made


def configmap(name: str, nodes: int, trainer: str, operator: str) -> Objects:  # noqa: ARG001 -- one signature
    """One immutable ConfigMap per job, mounted in each pod."""
    made = pods(name, nodes, trainer)
    data = {FILE: base64.b64encode(timed_archive()).decode()}
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": launcher_config_name(name, Launcher.TORCHRUN)},
        "immutable": True,
    }
    return [{**config, "binaryData": data}, *made]


def command(name: str, nodes: int, trainer: str, operator: str) -> Objects:  # noqa: ARG001 -- one signature
    """The whole launcher in each pod's command."""
    made = pods(name, nodes, trainer)
    for pod in made:
        _without_launcher_volume(pod)
        pod["spec"]["containers"][0]["command"] = [
            "python3",
            "-c",
            f"{NOW}# {base64.b64encode(timed_archive()).decode()}",
        ]
    return made


def init_container(name: str, nodes: int, trainer: str, operator: str) -> Objects:
    """An init container of the operator's image copies the launcher into an emptyDir."""
    made = pods(name, nodes, trainer)
    for pod in made:
        _without_launcher_volume(pod)
        mount = {"name": LAUNCHER_VOLUME, "mountPath": LAUNCHER_FOLDER}
        copying = ["python3", "-c", IN_OPERATOR_IMAGE.format(LAUNCHER_FOLDER)]
        spec = pod["spec"]
        spec["volumes"].append({"name": LAUNCHER_VOLUME, "emptyDir": {}})
        spec["initContainers"] = [{"name": "launcher", "image": operator, "command": copying, "volumeMounts": [mount]}]
        spec["containers"][0]["volumeMounts"].append(mount)
        spec["containers"][0]["command"] = ["python3", "-c", NOW]
    return made


def _without_launcher_volume(pod: dict[str, Any]) -> None:
    spec = pod["spec"]
    spec["volumes"] = [volume for volume in spec["volumes"] if volume["name"] != LAUNCHER_VOLUME]
    for container in spec["containers"]:
        container["volumeMounts"] = [mount for mount in container["volumeMounts"] if mount["name"] != LAUNCHER_VOLUME]


WAYS: dict[str, Callable[[str, int, str, str], Objects]] = {
    "ConfigMap": configmap,
    "python3 -c": command,
    "init container": init_container,
}


class Etcd:
    """Reads what was written below a prefix, from etcd itself."""

    def __init__(self, folder: Path) -> None:
        """Take the certificates from the control-plane node."""
        engine = shutil.which("podman") or "docker"
        node = "ddpjob-control-plane"
        for name in ("ca.crt", "healthcheck-client.crt", "healthcheck-client.key"):
            source_path = f"{node}:/etc/kubernetes/pki/etcd/{name}"
            subprocess.run([engine, "cp", source_path, str(folder / name)], check=True)
        address = kubectl("get", "node", node, "-o", "jsonpath={.status.addresses[?(@.type=='InternalIP')].address}")
        self._url = f"https://{address.split()[0]}:2379/v3/"
        self._context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        self._context.load_cert_chain(folder / "healthcheck-client.crt", folder / "healthcheck-client.key")

    def revision(self) -> int:
        """The store's revision now."""
        with self._post("kv/range", {"key": _encoded("/"), "count_only": True}) as answer:
            return int(json.load(answer)["header"]["revision"])

    def written(self, kind: str, since: int, until: int) -> Iterator[int]:
        """Sizes of the values that were written to objects of a kind in our namespace."""
        prefix = f"/registry/{kind}/{NAMESPACE}/"
        ends = {"key": _encoded(prefix), "range_end": _encoded(prefix[:-1] + "0"), "start_revision": since + 1}
        with self._post("watch", {"create_request": {**ends, "progress_notify": True}}) as stream:
            while True:
                try:
                    line = stream.readline()
                except TimeoutError:
                    return
                for event in json.loads(line)["result"].get("events", []):
                    if int(event["kv"]["mod_revision"]) <= until and "value" in event["kv"]:
                        yield len(base64.b64decode(event["kv"]["value"]))

    def _post(self, path: str, body: dict[str, Any]) -> HTTPResponse:
        request = urllib.request.Request(self._url + path, json.dumps(body).encode())  # noqa: S310 -- https
        answer: HTTPResponse = urllib.request.urlopen(request, timeout=3, context=self._context)  # noqa: S310
        return answer


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def start(objects: Objects) -> None:
    """Create the objects as the operator does: one request each."""
    api: Any = client.CoreV1Api()
    for item in objects:
        create = api.create_namespaced_pod if item["kind"] == "Pod" else api.create_namespaced_config_map
        create(NAMESPACE, item)


def wait_and_read(name: str) -> float:
    """When the launcher of node 0 started."""
    kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", f"pod/{name}", "--timeout=120s")
    return float(kubectl("logs", name, "-c", "trainer"))


def clear() -> None:
    """Delete what a run has made."""
    kubectl("delete", "pods,configmaps", "--all", "--force", "--grace-period=0", "--wait=true", "--ignore-not-found")


def print_sizes() -> None:
    """What each launcher's file takes."""
    for module in sorted({launcher.traits.module for launcher in Launcher}):
        files = sources(module)
        size = sum(len(text.encode()) for text in files.values())
        print(f"{module}: {len(files)} files, {size} bytes, in the archive {len(archive(module))} bytes")


def print_worker_starts(runs: int, compare: str) -> None:
    """How long a worker takes from its start to its end with a program that does nothing."""
    with tempfile.TemporaryDirectory() as folder:
        program, file, unpacked = Path(folder, "train.py"), Path(folder, FILE), Path(folder, "unpacked")
        program.touch()
        file.write_bytes(archive("torchrun"))
        with zipfile.ZipFile(file) as packed:
            packed.extractall(unpacked)
        run = ["--ddpjob-run", "worker"]
        ways = {"python alone": [], "the archive": [str(file), *run], "its files in a folder": [str(unpacked), *run]}
        if compare:
            ways["compared"] = shlex.split(compare)
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(runs):
            for way, launcher in ways.items():
                command = [
                    sys.executable,
                    "-B",
                    "-u",
                    *launcher,
                    *(["yes", "script"] if launcher else []),
                    str(program),
                ]
                begin = time.perf_counter()
                subprocess.run(command, check=True)
                seconds[way].append(time.perf_counter() - begin)
        for way, values in seconds.items():
            spread = f"{min(values) * 1000:.0f} to {max(values) * 1000:.0f}"
            print(f"{way}: {statistics.median(values) * 1000:.1f} ms from a worker's start to its end ({spread})")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trainer")
    parser.add_argument("--operator")
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--compare", default="")
    options = parser.parse_args()
    if options.trainer and options.operator:
        measure_delivery(options)
    else:
        print_sizes()
        print_worker_starts(options.runs, options.compare)


def measure_delivery(options: argparse.Namespace) -> None:
    """Print what three ways of delivery cost on a cluster."""
    subprocess.run(["kubectl", "create", "namespace", NAMESPACE], check=False, capture_output=True)
    config.load_kube_config()  # type: ignore[no-untyped-call]
    images = (options.trainer, options.operator)
    with tempfile.TemporaryDirectory() as folder:
        etcd = Etcd(Path(folder))
        for way, make in WAYS.items():
            clear()
            before, objects = etcd.revision(), make("digits", options.nodes, *images)
            start(objects)
            described = kubectl("describe", "pod", "digits-a0-0")
            for ordinal in range(options.nodes):
                wait_and_read(f"digits-a0-{ordinal}")
            after = etcd.revision()
            sizes = {kind: list(etcd.written(kind, before, after)) for kind in ("configmaps", "pods", "events")}
            total = sum(map(sum, sizes.values()))
            sent = sum(len(json.dumps(item, separators=(",", ":"))) for item in objects)
            print(f"{way}: {len(objects)} objects, {sent} bytes sent, {total} bytes written to etcd:", end=" ")
            print({kind: (len(values), sum(values)) for kind, values in sizes.items()}, end="; ")
            print(f"describe pod: {len(described.splitlines())} lines, {len(described)} bytes")
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for run in range(options.runs):
        for way, make in WAYS.items():
            clear()
            objects = make(f"r{run}", 1, *images)
            begin = time.time()
            start(objects)
            seconds[way].append(wait_and_read(objects[-1]["metadata"]["name"]) - begin)
    for way, values in seconds.items():
        spread = f"{min(values):.2f} to {max(values):.2f}"
        print(f"{way}: {statistics.median(values):.2f} s from the first request to the launcher's start ({spread})")
    subprocess.run(["kubectl", "delete", "namespace", NAMESPACE, "--wait=false"], check=True, capture_output=True)


if __name__ == "__main__":
    main()
