"""kubectl as a person types it, for tests that look at what a person sees."""

import functools
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import yaml

from ddpjob_core.api.constants import GROUP, PLURAL, VERSION

POLL_SECONDS = 0.25
T = TypeVar("T")
Objects: TypeAlias = list[dict[str, Any]]

# The images have no program that sends signals.
SIGNAL_RANK = """
import os, sys
for entry in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{entry}/environ") as file:
            environment = dict(item.partition("=")[::2] for item in file.read().split(chr(0)))
    except OSError:
        continue
    if environment.get("RANK") == sys.argv[1] and "TORCHELASTIC_RUN_ID" in environment:
        os.kill(int(entry), int(sys.argv[2]))
        break
else:
    sys.exit("no process has this rank here")
"""


@functools.cache
def api_server() -> Any:
    """The API server that kubectl talks to: for custom resources, and for pods."""
    # Not installed where tests without a cluster share these modules.
    from kubernetes import client, config  # noqa: PLC0415

    connection = config.new_client_from_config()
    return client.CustomObjectsApi(connection), client.CoreV1Api(connection)


class KubectlError(Exception):
    """kubectl exited with an error; the message is what it printed."""


@dataclass(frozen=True)
class Kubectl:
    namespace: str = "default"
    program: str = os.environ.get("KUBECTL", "kubectl")

    def __call__(self, *arguments: str, stdin: str | None = None, timeout: float = 120) -> str:
        done = subprocess.run(
            [self.program, "--namespace", self.namespace, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def apply(self, *objects: dict[str, Any]) -> None:
        self("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def create(self, *objects: dict[str, Any]) -> None:
        self("create", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        text = self("get", kind, name, "-o", "json", "--ignore-not-found")
        return json.loads(text) if text.strip() else None

    def list(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        arguments = ["get", kind, "-o", "json", *(["-l", selector] if selector else [])]
        items: list[dict[str, Any]] = json.loads(self(*arguments))["items"]
        return items

    def patch(self, kind: str, name: str, change: dict[str, Any]) -> None:
        self("patch", kind, name, "--type", "merge", "-p", json.dumps(change))

    def logs(self, pod: str, container: str = "trainer") -> str:
        """The log of a container; as with `job`, tests look at it again and again."""
        from kubernetes.client import ApiException  # noqa: PLC0415

        _, pods = api_server()
        try:
            answer = pods.read_namespaced_pod_log(pod, self.namespace, container=container, _preload_content=False)
        except ApiException as error:
            raise KubectlError(f"logs of {pod}: {error.body or error.reason}") from error
        return str(answer.data.decode())

    def evict(self, pod: str) -> None:
        """Have a pod removed as a drained node does."""
        metadata = {"name": pod, "namespace": self.namespace}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/eviction"
        self("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))

    def signal_rank(self, pod: str, rank: int, number: int) -> None:
        """Send the training process of a rank a signal, from inside its pod."""
        self("exec", pod, "-c", "trainer", "--", "python3", "-c", SIGNAL_RANK, str(rank), str(int(number)))

    def job(self, name: str) -> dict[str, Any]:
        """The job as the API server has it.

        Tests look at it again and again; a process of kubectl for each look took a fifth of the tests' time.
        """
        jobs, _ = api_server()
        found: dict[str, Any] = jobs.get_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, name)
        return found

    def phase(self, name: str) -> str:
        return str(self.job(name).get("status", {}).get("phase", ""))

    def wait_for_phase(self, name: str, *phases: str, timeout: float = 180) -> dict[str, Any]:
        """The job once it is in one of the phases; a job that ends in another fails at once, with its own words."""

        def look() -> dict[str, Any] | None:
            job = self.job(name)
            phase = job.get("status", {}).get("phase")
            if phase in phases:
                return job
            assert phase not in ("Succeeded", "Failed"), f"{name} is {phase}: {self.story(name)}"
            return None

        return wait_until(look, f"{name} to be {' or '.join(phases)}", timeout, lambda: self.story(name))

    @contextmanager
    def watching(self, name: str) -> Iterator[Objects]:
        """Every status of a job that the API server tells of; complete once this has been left."""
        statuses: Objects = []
        show = ["--watch", "--request-timeout=0", "-o", r"jsonpath={.status}{'\n'}"]
        command = [self.program, "--namespace", self.namespace, "get", "ddpjob", name, *show]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:
            stdout = watch.stdout
            assert stdout is not None
            reader = threading.Thread(
                target=lambda: statuses.extend(json.loads(line) for line in stdout if line.strip())
            )
            reader.start()
            try:
                yield statuses
            finally:
                watch.terminate()
                reader.join()

    @contextmanager
    def following(self, pod: str, container: str = "trainer") -> Iterator[Callable[[], str]]:
        """What gives the whole log of a container once it has ended: of a deleted pod, nothing can be read later."""
        command = [self.program, "--namespace", self.namespace, "logs", "--follow", pod, "--container", container]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
            stdout = follower.stdout
            assert stdout is not None
            with ThreadPoolExecutor(1) as reader:
                text = reader.submit(stdout.read)
                try:
                    yield lambda: text.result(60)
                finally:
                    follower.terminate()

    def story(self, name: str) -> str:
        """What a person would look at to understand where a job stands."""
        parts = [
            self("get", "ddpjobs", name, "-o", "wide"),
            yaml.safe_dump(self.job(name).get("status", {})),
            self("get", "pods", "-o", "wide"),
            self("get", "events", "--sort-by=.lastTimestamp"),
        ]
        for pod in self.list("pods", f"ddpjob.dev/job={name}"):
            pod_name = pod["metadata"]["name"]
            try:
                parts.append(f"--- {pod_name}\n{self('logs', pod_name, '-c', 'trainer', '--tail', '30')}")
            except KubectlError as error:
                parts.append(f"--- {pod_name}: {error}")
        return "\n".join(parts)


def wait_until(
    look: Callable[[], T | None], what: str, timeout: float = 60, story: Callable[[], str] | None = None
) -> T:
    """The first true answer of `look`; an AssertionError that tells the story when the deadline passes."""
    deadline = time.monotonic() + timeout
    while True:
        answer = look()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout:.0f} s for {what}\n{story() if story else ''}")
        time.sleep(POLL_SECONDS)
