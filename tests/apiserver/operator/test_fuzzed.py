"""Some fuzzed jobs, statuses of pods, termination messages and answers, next to healthy jobs.

`tests/scale/test_fuzzed.py` has 10,000 of each. What fails names the seeds that repeat it: DDPJOB_FUZZ=pods:12,13.
"""

from pathlib import Path
from typing import Final

import pytest

from tests.apiserver.controlplane import ControlPlane
from tests.apiserver.fuzz.deeds import fuzz, seeds_of
from tests.apiserver.fuzz.healthy import healthy_jobs
from tests.apiserver.fuzz.town import town_of
from tests.apiserver.stage import ForkedOperator

OF_EACH: Final = 48
ANSWERS: Final = 200
"""These cost little."""
MOST_MIB: Final = 300

pytestmark = pytest.mark.timeout(300)


async def test_nothing_that_is_written_into_a_cluster_stops_the_operator_or_costs_a_healthy_job_an_attempt(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with town_of(control_plane, tmp_path, ForkedOperator) as town:
        async with healthy_jobs(town, 0) as healthy:
            await fuzz(town, seeds_of(0, OF_EACH, ANSWERS))
        await town.check()
        healthy.judge()
        print(dict(town.counts), f"{max(town.memory):.0f} MiB")  # noqa: T201 shown with -s
        assert max(town.memory) < MOST_MIB
