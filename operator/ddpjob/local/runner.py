"""Runs one DDPJob on this machine: the operator's own decisions, carried out with processes instead of pods."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from ddpjob.local.advice import LocalAdvice
from ddpjob.local.errors import LocalError
from ddpjob.local.kube import LocalKube, Objects
from ddpjob.local.kubelet import ProcessKubelet, Start, end_marked
from ddpjob.local.manifest import LocalManifest
from ddpjob.local.metrics import NoMetrics
from ddpjob.local.network import LOOPBACK, Network, Ports, ports_folder
from ddpjob.local.process import Machine, process_of, trainer_container
from ddpjob.local.records import Records, job_to_resume, left_unfinished, to_be_resumed
from ddpjob.local.show import CarefulShow, Show
from ddpjob.local.tail import Tails
from ddpjob.local.volumes import Mount, Places, make_folders, mounts_of
from ddpjob_core.api.constants import LABEL_ATTEMPT, LABEL_ORDINAL
from ddpjob_core.api.errors import NotFound
from ddpjob_core.api.resources import EVENTS, JOBS, PODS, SERVICES, Resource
from ddpjob_core.api.status import ConditionType, DDPJobStatus
from ddpjob_core.children.pod import build_pod
from ddpjob_core.children.processes import processes_of
from ddpjob_core.engine.controller import Controller, Rates
from ddpjob_core.engine.http import open_transport
from ddpjob_core.engine.protocols import Json, SshKey
from ddpjob_core.observations.observe import job_record, pod_record, service_record
from ddpjob_core.observations.observed import JobRecord

_POLL_SECONDS: Final = 1.0
_LOOK_EVERY: Final = 0.05


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended.

    Attributes:
        status: what was written last.
        folder: the job's, with a folder for each pod.
        interrupted: whether it was asked to stop.
        output_error: why the output could no longer be written, if it was asked to stop for that reason.
        checkpoints: the folder that the program saves in, if the job has one.
    """

    status: DDPJobStatus
    folder: Path
    interrupted: bool
    output_error: OSError | None = None
    checkpoints: Path | None = None


class LocalRunner:
    """Runs one job from its start, or from where it was left, to its end."""

    def __init__(
        self,
        manifest: LocalManifest,
        records: Records,
        machine: Machine,
        *,
        show: Show,
        now: Callable[[], datetime],
        new_uid: Callable[[], str],
    ) -> None:
        """Args:
        manifest: the job.
        records: where it is kept.
        machine: where it runs.
        show: shows what happens.
        now: wall clock.
        new_uid: generates uids.
        """
        self._manifest = manifest
        self._records = records
        self._machine = machine
        self._show = CarefulShow(show, self._stop_later)
        self._now = now
        self._new_uid = new_uid
        self._objects = Objects(now=now, new_uid=new_uid)
        self._tails = Tails(self._show.output)
        self._status = DDPJobStatus()
        self._ended = asyncio.Event()
        self._interrupts = 0
        self._stopping = False
        self._ports = Ports(ports_folder())
        self._network: Network
        self._attempt = ""
        self._config_maps = manifest.config_maps
        self._checkpoints: Path | None = None
        self._others: Sequence[Mapping[str, Any]] = ()
        self._kubelet = ProcessKubelet(
            self._objects,
            prepare=self._prepare,
            now=now,
            started=lambda pod, file: self._tails.follow(pod["metadata"]["name"], file),
            nodes=manifest.spec.nodes,
        )

    async def run(self) -> Ending:
        """Run the job to its end, or until `interrupt`.

        Raises:
            LocalError: the job cannot run on this machine.
            Exception: a bug; before it is raised the programs have been asked to save and stop.
        """
        try:
            return await self._run()
        finally:
            self._ports.release()

    async def _run(self) -> Ending:
        job, resumed = self._job()
        record = job_record(job)
        assert record is not None  # noqa: S101 it was read from a manifest with a name
        # Only after the processes that a killed runner left have ended: they hold ports.
        self._network = self._choose_ports()
        self._check(record)
        controller = Controller(
            LocalKube(self._objects, self._kubelet, now=self._now),
            metrics=NoMetrics(),
            open_transport=open_transport,
            new_ssh_key=_no_ssh_key,
            now=self._now,
            call_later=asyncio.get_running_loop().call_later,
            instance="ddpjob",
            rates=Rates(poll_interval=_POLL_SECONDS),
            locate=self._locate,
            advice=LocalAdvice(self._records.folder / record.uid),
        )
        self._objects.listen(lambda resource, raw, gone: self._changed(controller, resource, raw, gone=gone))
        self._show.begun(record, self._network, self._records, resumed=resumed)
        if self._others and not resumed:
            self._show.event("Warning", "AnotherUnfinished", left_unfinished(self._others, self._records.folder))
        self._objects.add(JOBS, job)
        parts = (controller.poller.run(), controller.work(), self._tails.run())
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            await self._until_the_end(controller, tasks)
        except Exception:
            # Nothing decides any more, so what ends now does not count as failed.
            for task in tasks:
                task.cancel()
            await self._kubelet.terminate(self._manifest.spec.grace_period_seconds)
            raise
        finally:
            self._kubelet.kill()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            self._tails.close()
        output_error = self._show.error
        if output_error is not None and not isinstance(output_error, OSError):
            raise output_error
        return Ending(self._status, self._records.folder / record.uid, self._stopping, output_error, self._checkpoints)

    def stop(self) -> None:
        """Ask the training to save and stop, however often this is called."""
        self._stopping = True
        # The job may have ended and been deleted at the end of its time to live.
        with contextlib.suppress(NotFound):
            self._objects.change(
                JOBS, self._manifest.namespace, self._manifest.name, lambda raw: raw["spec"].update(suspend=True)
            )

    def interrupt(self) -> None:
        """Ask the same for a user at the terminal, who may ask again: then all processes are killed."""
        self._interrupts += 1
        if self._interrupts > 1:
            self._kubelet.kill()
        else:
            self.stop()

    def _stop_later(self) -> None:
        # Output fails in the middle of changes to the same objects.
        asyncio.get_running_loop().call_soon(self.stop)

    def _choose_ports(self) -> Network:
        spec = self._manifest.spec
        self._ports.release()
        try:
            return self._ports.network(
                rendezvous_port=spec.rendezvous.port,
                metrics_port=spec.metrics.port,
                nodes=spec.nodes,
                processes=processes_of(spec),
            )
        except OSError as error:
            raise LocalError(f"spec.metrics.port: {error}") from error

    def _look_at_ports(self, attempt: str) -> None:
        """Choose other ports for an attempt if another program has taken one before its first pod starts."""
        if attempt == self._attempt:
            return
        self._attempt = attempt
        if not self._ports.are_free():
            self._network = network = self._choose_ports()
            where = f"http://{LOOPBACK}:{network.metrics_port}/metrics"
            self._show.event("Warning", "PortsTaken", f"attempt {attempt} uses other ports: metrics at {where} and up")

    def _locate(self, ordinal: int, address: str, port: int) -> tuple[str, int]:
        return self._network.locate(ordinal, address, port)

    async def _until_the_end(self, controller: Controller, tasks: list[asyncio.Task[None]]) -> None:
        ended = asyncio.create_task(self._ended.wait())
        done, _ = await asyncio.wait((ended, *tasks), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        await self._kubelet.drained()
        # Pods that were asked to stop when the job had failed have reported their last step since.
        controller.queue.add((self._manifest.namespace, self._manifest.name))
        while controller.queue.depth or controller.queue.longest_running:  # noqa: ASYNC110 a queue has no event for it
            await asyncio.sleep(_LOOK_EVERY)

    def _job(self) -> tuple[Json, bool]:
        left, asked = self._records.left(), self._manifest.job
        before, self._others = job_to_resume(left, asked)
        # Left by a runner that was killed.
        end_marked(*(f"{job['metadata']['uid']}/" for job in left))
        self._records.prune(left)
        if before is not None:
            return to_be_resumed(before, self._now()), True
        # A job that is run here is meant to run, whatever the manifest says for a cluster.
        spec = {**asked["spec"], "suspend": False}
        job = {**asked, "metadata": {**asked["metadata"], "uid": self._new_uid()}, "spec": spec}
        return {name: value for name, value in job.items() if name != "status"}, False

    def _check(self, job: JobRecord) -> None:
        """Find out what cannot run here before anything is started."""
        self._config_maps = self._manifest.config_maps_for(job)
        for ordinal in range(self._manifest.spec.nodes):
            pod = build_pod(job, self._manifest.spec, 0, ordinal)
            pod["metadata"]["uid"] = "-"
            start, _ = self._start(pod)
            if ordinal == 0 and self._manifest.spec.checkpoint is not None:
                self._checkpoints = Path(start.process.environment["DDPJOB_CHECKPOINT_PATH"])

    def _prepare(self, pod: Json) -> Start:
        self._look_at_ports(pod["metadata"]["labels"][LABEL_ATTEMPT])
        start, mounts = self._start(pod)
        make_folders(mounts)
        for folder in (start.output.parent, start.process.folder):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise LocalError(f"cannot create {folder}: {error}") from error
        return start

    def _start(self, pod: Json) -> tuple[Start, tuple[Mount, ...]]:
        metadata, config_maps = pod["metadata"], self._config_maps
        folder = self._records.pod_folder(metadata["ownerReferences"][0]["uid"], metadata["name"])
        mounts = mounts_of(pod, trainer_container(pod), Places(self._records.claims, folder), config_maps)
        termination_log = folder / "termination-log"
        process = process_of(
            pod,
            int(metadata["labels"][LABEL_ORDINAL]),
            network=self._network,
            mounts=mounts,
            machine=self._machine,
            termination_log=termination_log,
            config_maps=config_maps,
        )
        return Start(process, Path(folder / "log"), termination_log), mounts

    def _changed(self, controller: Controller, resource: Resource, raw: Json, *, gone: bool) -> None:
        caches = controller.caches
        if resource == PODS:
            pod = pod_record(raw)
            if pod is not None:
                caches.pods.deleted(pod) if gone else caches.pods.seen(pod)
        elif resource == SERVICES:
            service = service_record(raw)
            if service is not None:
                caches.services.deleted(service) if gone else caches.services.seen(service)
        elif resource == EVENTS:
            if not gone:
                self._show.event(raw["type"], raw["reason"], raw["message"])
        elif resource == JOBS:
            self._job_changed(controller, raw, gone=gone)

    def _job_changed(self, controller: Controller, raw: Json, *, gone: bool) -> None:
        job = job_record(raw)
        if job is None or gone:
            # It was deleted at the end of its time to live.
            self._ended.set()
            return
        with contextlib.suppress(OSError):
            self._records.save(raw)
        controller.caches.jobs.seen(job)
        if job.status is not None and job.status != self._status:
            self._status = job.status
            self._show.status(job.status)
            if job.status.finished or (self._stopping and job.status.holds(ConditionType.SUSPENDED)):
                self._ended.set()


def _no_ssh_key() -> SshKey:
    raise AssertionError("a job whose nodes need ssh is refused when its manifest is read")
