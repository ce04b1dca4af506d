"""What is done to the operator's jobs, pods and polls: each kind of fuzz in rounds of some dozens of seeds."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from ddpjob_core.api.resources import JOBS, PODS
from tests.apiserver.controlplane import Json
from tests.apiserver.fuzz import mutants
from tests.apiserver.fuzz.town import KINDS, Town, gathered
from tests.apiserver.stage import container, now, until

JOBS_OF_A_ROUND: Final = 40
WRITTEN_TO: Final = 6
"""Jobs of a round whose pods are written to."""
WAVES: Final = {"pods": 3, "messages": 2}
"""How often each pod of a round is written to."""
ANSWERING: Final = 24
"""Jobs that are asked for their progress."""
FOREIGN: Final = 7
"""Of so many seeds for pods, one makes a foreign one."""
DELETED: Final = 13
"""Of so many, one deletes the pod."""
_PATIENCE: Final = 120.0

Seeds = dict[str, Sequence[int]]


def seeds_of(first: int, count: int, answers: int | None = None) -> Seeds:
    """Seeds of each kind; or only those that DDPJOB_FUZZ=kind:1,2,3 names.

    Args:
        first: of each kind.
        count: of each kind.
        answers: how many of answers, if another number.
    """
    only = os.environ.get("DDPJOB_FUZZ")
    if not only:
        counts = {**dict.fromkeys(KINDS, count), "answers": answers or count}
        return {kind: range(first, first + number) for kind, number in counts.items()}
    kind, _, numbers = only.partition(":")
    assert kind in KINDS, f"DDPJOB_FUZZ is one of {KINDS} and seeds, such as jobs:1,2,3, not {only!r}"
    return {each: [int(number) for number in numbers.split(",")] if each == kind else () for each in KINDS}


async def fuzz(town: Town, seeds: Seeds) -> None:
    """Do all of it, the kinds at the same time, and check the operator after each round."""
    deeds: dict[str, Callable[[Town, Sequence[int]], Coroutine[Any, Any, None]]] = {
        "jobs": jobs_come_and_go,
        "pods": partial(pods_are_written_to, "pods"),
        "messages": partial(pods_are_written_to, "messages"),
        "answers": endpoints_answer,
    }
    async with asyncio.TaskGroup() as tasks:
        for kind, numbers in seeds.items():
            if numbers:
                tasks.create_task(deeds[kind](town, numbers))


async def jobs_come_and_go(town: Town, seeds: Sequence[int]) -> None:
    """Fuzzed jobs: all that are admitted are served, changed, and deleted again."""
    for batch in _batches(seeds, JOBS_OF_A_ROUND):
        admitted = [job for job in await gathered(_admit(town, seed) for seed in batch) if job is not None]

        async def unserved(admitted: list[Json] = admitted) -> bool:
            found = {job["metadata"]["name"]: job for job in await town.all(JOBS, "jobs")}
            # One that has finished may be gone already.
            waiting = [
                job for job in admitted if not found.get(job["metadata"]["name"], {"status": True}).get("status")
            ]
            admitted[:] = waiting
            return not waiting

        names = [str(job["metadata"]["name"]) for job in admitted]
        try:
            await until("all jobs that were admitted have a status", unserved, _PATIENCE)
        except AssertionError as error:
            left = " ".join(f"{town.namespaces['jobs']}/{job['metadata']['name']}" for job in admitted)
            raise AssertionError(f"without a status:\n{town.repeats(left + ' ')}") from error
        await gathered(_change(town, name) for name in names)
        await town.rests()
        await town.check()
        await town.clear("jobs")


async def _admit(town: Town, seed: int) -> Json | None:
    raw = mutants.job_of(seed)
    town.gave("jobs", raw["metadata"]["name"], seed)
    taken, answer = await town.write("POST", JOBS, "jobs", raw)
    return answer if taken else None


async def _change(town: Town, name: str) -> None:
    seed = int(name.rpartition("-")[2])
    if seed % 2:
        await town.rewrite("jobs", name, lambda job: mutants.changed(job, seed))
    if seed % 3:
        status = partial(mutants.status_of, seed=seed)
        await town.rewrite("jobs", name, lambda job: {**job, "status": status(job.get("status"))}, "status")


async def pods_are_written_to(kind: str, town: Town, seeds: Sequence[int]) -> None:
    """Fuzzed statuses of pods, or ends of pods with fuzzed termination messages."""
    # To repeat some, each job there is gets all of them, one after the other.
    only = bool(os.environ.get("DDPJOB_FUZZ"))
    count = len(mutants.SPECS) if only else WRITTEN_TO
    for number, batch in enumerate(_batches(seeds, len(seeds) if only else count * 4 * WAVES[kind])):
        jobs = [_job_for(kind, number * count + each) for each in range(count)]
        for taken, answer in await gathered(town.write("POST", JOBS, kind, job) for job in jobs):
            assert taken, answer

        async def have_begun() -> bool:
            # Some end very soon.
            found = await town.all(JOBS, kind)
            return all(job.get("status", {}).get("podsCreated") for job in found) and bool(await town.all(PODS, kind))

        await until(f"the jobs of round {number} have their pods", have_begun, _PATIENCE)
        uids = {job["metadata"]["name"]: job["metadata"]["uid"] for job in await town.all(JOBS, kind)}
        for wave in [[seed] * count for seed in batch] if only else _batches(batch, count * 4):
            # Those of the next attempt, where the last wave has ended one.
            pods = [pod for pod in await town.all(PODS, kind) if pod["metadata"]["name"].startswith(f"{kind}-")]
            if not pods:
                break
            step = max(1, len(pods) // count) if only else 1
            targets = [pods[place * step % len(pods)] for place in range(len(wave))]
            await gathered(_write(town, kind, pod, seed, uids) for pod, seed in zip(targets, wave, strict=True))
            await town.rests()
        await town.check()
        await town.clear(kind)


def _job_for(kind: str, number: int) -> Json:
    spec = mutants.spec_for(number)
    return {
        "apiVersion": "ddpjob.dev/v1alpha1",
        "kind": "DDPJob",
        "metadata": {"name": f"{kind}-{number}"},
        "spec": {**spec, "nodes": 4},
    }


async def _write(town: Town, kind: str, pod: Json, seed: int, uids: dict[str, str]) -> None:
    job = str(pod["metadata"]["labels"]["ddpjob.dev/job"])
    town.gave(kind, job, seed)
    if kind == "messages":
        await town.write("PUT", PODS, kind, {**pod, "status": mutants.ended_of(seed)}, "status")
        return
    status = {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}], **mutants.pod_status_of(seed)}
    if seed % FOREIGN == 0:
        taken, answer = await town.write("POST", PODS, kind, mutants.foreign_pod_of(job, uids.get(job, "x"), seed))
        pod = answer if taken else pod
    await town.write("PUT", PODS, kind, {**pod, "status": status}, "status")
    if seed % DELETED == 0:
        grace = "" if seed % 2 else "?gracePeriodSeconds=0"
        await town.wire.send("DELETE", PODS.path(town.namespaces[kind], pod["metadata"]["name"]) + grace)


async def endpoints_answer(town: Town, seeds: Sequence[int]) -> None:
    """Fuzzed answers of ranks: over again until each seed has been asked for."""
    left = iter(seeds)
    done = asyncio.Event()
    async with _endpoint(town, left, done) as port, asyncio.TaskGroup() as tasks:
        playing = tasks.create_task(_let_run(town, port))
        checking = tasks.create_task(_keep_checking(town))
        await done.wait()
        playing.cancel()
        checking.cancel()
    await town.check()
    await town.clear("answers")


async def _keep_checking(town: Town) -> None:
    while True:
        await town.check()
        await asyncio.sleep(2)


@asynccontextmanager
async def _endpoint(town: Town, left: Iterator[int], done: asyncio.Event) -> AsyncIterator[int]:
    """Every pod's endpoint. The first answer of each is a good one: what has never served is asked less often."""
    asked: set[str] = set()
    steps = itertools.count(1)
    open_now: set[asyncio.StreamWriter] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_now.add(writer)
        try:
            await reader.readuntil(b"\r\n\r\n")
            address = str(writer.get_extra_info("sockname")[0])
            seed = next(left, None) if address in asked else None
            served = mutants.good_answer(next(steps)) if seed is None else mutants.answer_of(seed)
            if seed is None and address in asked:
                done.set()
            asked.add(address)
            if seed is not None:
                town.counts["answers"] += 1
                town.gave("answers", f"answers-{int(address.rpartition('.')[2]) - 1}", seed)
            for part in served.parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(served.pause)
            if served.reset:
                writer.transport.abort()
        except (OSError, asyncio.IncompleteReadError):
            # The operator has heard enough.
            pass
        except asyncio.CancelledError:
            # The loop ends with the test: a handler that is cancelled then is logged as a fault.
            pass
        finally:
            open_now.discard(writer)
            writer.close()

    server = await asyncio.start_server(answer, "0.0.0.0", 0)  # noqa: S104 the addresses of all pods
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for writer in open_now:
            writer.transport.abort()


async def _let_run(town: Town, port: int) -> None:
    """Create the jobs that are asked, and run all their pods; those of the next attempt too, until cancelled."""
    actions = ("Warn", "Restart", "Fail")
    while True:
        found = {job["metadata"]["name"]: job for job in await town.all(JOBS, "answers")}
        for number in range(ANSWERING):
            job = found.get(f"answers-{number}")
            if job is None:
                spec: Json = {
                    **mutants.spec_for(0),
                    "nodes": 1 + number % 2,
                    "metrics": {"port": port},
                    "rendezvous": {"port": 1024 if port != 1024 else 1025},
                    "progressDeadline": {"seconds": 10, "action": actions[number % len(actions)]},
                }
                raw = {**_job_for("answers", number), "spec": spec}
                taken, answer = await town.write("POST", JOBS, "answers", raw)
                assert taken, answer
            elif job.get("status", {}).get("phase") in ("Failed", "Succeeded"):
                await town.wire.send("DELETE", JOBS.path(town.namespaces["answers"], f"answers-{number}"))
        for pod in await town.all(PODS, "answers"):
            await _run(town, pod)
        await asyncio.sleep(0.3)


async def _run(town: Town, pod: Json) -> None:
    name = pod["metadata"]["name"]
    if pod["metadata"].get("deletionTimestamp") or pod["metadata"].get("ownerReferences", [{}])[0].get("kind") is None:
        await town.wire.send("DELETE", f"{PODS.path(town.namespaces['answers'], name)}?gracePeriodSeconds=0")
        return
    if pod["status"].get("containerStatuses"):
        return
    number = int(pod["metadata"]["labels"]["ddpjob.dev/job"].rpartition("-")[2])
    address = f"127.77.{pod['metadata']['labels']['ddpjob.dev/ordinal']}.{number + 1}"
    status = {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
        "containerStatuses": [container({"running": {"startedAt": now()}})],
    }
    await town.write("PUT", PODS, "answers", {**pod, "status": status}, "status")


def _batches(seeds: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(seeds), size):
        yield seeds[start : start + size]
