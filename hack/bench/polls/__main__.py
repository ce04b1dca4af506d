"""The benchmark: python -m hack.bench.polls [--jobs 200] [--every 2] [--seconds 30] [--refused].

The operator's own poller asks so many jobs over real sockets of this machine, and nothing else runs in its process. The
endpoints are those of another process, whose processor time does not count; with --refused nothing listens at all.
"""

import argparse
import asyncio
import os
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import uvloop

from ddpjob_core.engine.http import open_transport
from ddpjob_core.engine.memory import Memories
from ddpjob_core.engine.poller import ProgressPoller
from ddpjob_core.wire.progress import PollTarget
from hack.bench.polls.endpoints import endpoints

_PATIENCE: Final = 2.0


@dataclass(frozen=True, slots=True)
class Cost:
    """How the polls of some seconds ended, and the processor seconds that they took."""

    seconds: float
    outcomes: Counter[str]
    used: float

    def line(self) -> str:
        """For a person."""
        polls = self.outcomes.total()
        outcomes = ", ".join(f"{count} {name}" for name, count in self.outcomes.items())
        return (
            f"{polls / self.seconds:.1f} polls per second ({outcomes}): "
            f"{100 * self.used / self.seconds:.2f} % of a core, {1000 * self.used / polls:.3f} ms of a core each"
        )


async def measure(jobs: int, every: float, seconds: float, port: int) -> Cost:
    """Ask jobs as the operator does.

    Args:
        jobs: how many, each at a loopback address of its own.
        every: seconds between two polls of a job.
        seconds: for which is measured, after as many polls of each job as are made in `every` seconds.
        port: at which they answer, or nothing does.
    """
    outcomes: Counter[str] = Counter()
    memories = Memories()
    poller = ProgressPoller(
        memories=memories,
        changed=lambda _: None,
        count=lambda outcome: outcomes.update((outcome,)),
        drop=lambda _: None,
        open_transport=open_transport,
        now=lambda: datetime.now(UTC),
        interval=every,
        patience=_PATIENCE,
    )
    task = asyncio.create_task(poller.run())
    for number in range(jobs):
        target = PollTarget(0, f"127.1.{number // 250}.{number % 250 + 1}", port)
        poller.follow(memories.of(f"uid-{number}", (f"team-{number % 10}", f"job-{number}")), (target,))
    await asyncio.sleep(every)
    outcomes.clear()
    clock = asyncio.get_running_loop().time
    begun, before = clock(), _used()
    await asyncio.sleep(seconds)
    cost = Cost(clock() - begun, Counter(outcomes), _used() - before)
    task.cancel()
    await asyncio.wait([task])
    return cost


def _used() -> float:
    times = os.times()
    return times.user + times.system


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--every", type=float, default=2.0, help="seconds between two polls of a job (%(default)s)")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--refused", action="store_true", help="nothing listens at the endpoints")
    arguments = parser.parse_args()
    with endpoints(refuse=arguments.refused) as port:
        print(uvloop.run(measure(arguments.jobs, arguments.every, arguments.seconds, port)).line())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
