"""A control plane with played nodes, the operator as a process, and Kubernetes' controller of Jobs."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from ddpjob_core.api.resources import JOBS, PODS
from ddpjob_operator.connection import connect
from tests.apiserver.controlplane import ControlPlane
from tests.apiserver.stage import Admin, OperatorProcess, until
from tests.scale.kwok import kwok_nodes

NODES: Final = 100
_JOB_CONTROLLER: Final = ("--kube-api-qps=10000", "--kube-api-burst=10000", "--concurrent-job-syncs=20")
_AT_REST: Final = 0.15
"""Processor seconds per second."""
_POD_NAME: Final = "ddpjob-operator-0"


@dataclass
class Scene:
    """What is measured on.

    Attributes:
        served: the namespace that the operator serves.
        bare: that of the bare client's pods.
        jobs: that of Kubernetes' Jobs.
    """

    plane: ControlPlane
    admin: Admin
    operator: OperatorProcess
    served: str
    bare: str
    jobs: str
    names: int = field(default=0)

    def name(self, kind: str) -> str:
        """Of an object, like no other."""
        self.names += 1
        return f"{kind}-{self.names}"

    def processor_seconds(self) -> dict[str, float]:
        """That the programs have used so far."""
        programs = {name: self.plane.process_id(name) for name in ("kube-apiserver", "etcd", "kube-controller-manager")}
        return {name: _used(pid) for name, pid in {**programs, "operator": self.operator.pid}.items()}

    @property
    def memory(self) -> float:
        """MiB that the operator takes."""
        return psutil.Process(self.operator.pid).memory_info().rss / 2**20

    def manifest(self, name: str, nodes: int, **spec: object) -> dict[str, Any]:
        """A job."""
        trainer = {"image": "i", "script": "train.py"}
        return {
            "apiVersion": "ddpjob.dev/v1alpha1",
            "kind": "DDPJob",
            "metadata": {"name": name, "namespace": self.served},
            "spec": {"nodes": nodes, "procsPerNode": 1, "trainer": trainer, **spec},
        }

    async def create(self, name: str, nodes: int, **spec: object) -> None:
        """Create a job for the operator."""
        await self.admin.kube.create(JOBS, self.manifest(name, nodes, **spec))

    async def clear(self) -> None:
        """Remove all jobs and pods, and wait until everything is at rest."""
        for namespace in (self.served, self.bare, self.jobs):

            async def no_jobs(namespace: str = namespace) -> bool:
                with contextlib.suppress(TimeoutError):
                    await self.admin.ask("DELETE", JOBS.path(namespace), None)
                    return True
                return False

            await until(f"{namespace} has no jobs", no_jobs, 600)
        await self.admin.ask("DELETE", f"/apis/batch/v1/namespaces/{self.jobs}/jobs?propagationPolicy=Background", None)
        for namespace in (self.served, self.bare, self.jobs):

            async def gone(namespace: str = namespace) -> bool:
                # Thousands take longer than a request may: what is left is deleted by the next one.
                with contextlib.suppress(TimeoutError):
                    await self.admin.ask("DELETE", f"{PODS.path(namespace)}?gracePeriodSeconds=0", None)
                return not await self.admin.all(PODS, namespace)

            await until(f"{namespace} is empty", gone, 600)
        await self.rest()

    async def rest(self) -> None:
        """Wait until the programs have nothing left to do."""
        last = sum(self.processor_seconds().values())
        for _ in range(120):
            await asyncio.sleep(1)
            now = sum(self.processor_seconds().values())
            if now - last < _AT_REST:
                return
            last = now


async def wait(what: str, look: Callable[[], bool], seconds: float) -> None:
    """Until something can be seen in the audit log, looking seldom: it is parsed each time."""
    deadline = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < deadline, f"not reached within {seconds:g} s: {what}"
        await asyncio.sleep(1)


@asynccontextmanager
async def open_scene(assets: Path, kwok: Path, folder: Path) -> AsyncIterator[Scene]:
    """Start everything; it ends with it."""
    # As in a pod: its Lease is its own again when it is started again.
    os.environ.update(POD_NAME=_POD_NAME, POD_UID=_POD_NAME)
    plane = ControlPlane.start(assets, folder / "control-plane", durable=True)
    admin = Admin(await connect(str(plane.admin_kubeconfig)))
    served, bare, jobs = (plane.new_namespace() for _ in range(3))
    operator = OperatorProcess(plane.operator_kubeconfig, folder / "operator.log", f"--namespace={served}")
    try:
        plane.start_controllers(("job-controller",), *_JOB_CONTROLLER)
        with kwok_nodes(plane, kwok, NODES):
            await operator.start()
            await until("the operator serves", operator.port, 60)
            scene = Scene(plane, admin, operator, served, bare, jobs)
            yield scene
    finally:
        await admin.connection.close()
        await operator.end()
        plane.stop()


def _used(pid: int) -> float:
    used = psutil.Process(pid).cpu_times()
    return used.user + used.system
