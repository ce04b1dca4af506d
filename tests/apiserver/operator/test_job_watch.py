"""The watch of DDPJobs on a real API server: no error that answers it ends the operator."""

import os
from functools import partial
from pathlib import Path

import pytest

from tests.apiserver.controlplane import ControlPlane
from tests.apiserver.stage import Stage, set_stage, until

pytestmark = pytest.mark.timeout(240)

ERRORS = {
    "EVENT": [500, 410, 403, 504, 429, 400, 500],
    "WATCH": [410, 404, 400, 401, 403, 410, 500, 422],
    "LIST": [404, 410, 200, 401, 400, 500, 200],
}


def all_met(stage: Stage, kind: str) -> bool:
    return not stage.proxy.errors[kind, "ddpjobs"]


async def is_seen(stage: Stage, name: str) -> bool:
    return str((await stage.status(name)).get("phase")) == "Suspended"


@pytest.mark.skipif(os.environ.get("DDPJOB_FULL") != "1", reason="waits between many tries: make test-full")
async def test_every_error_that_answers_the_watch_of_jobs_is_survived(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with set_stage(control_plane, tmp_path) as stage:
        await stage.operator.start()
        await stage.create("first", nodes=1, suspend=True)
        await until("the first job is seen", partial(is_seen, stage, "first"))
        for kind, codes in ERRORS.items():
            stage.proxy.errors[kind, "ddpjobs"] = list(codes)
            if kind == "LIST":
                # After the end of a stream alone kopf does not list again.
                stage.proxy.gone["ddpjobs"] = "event"
            stage.proxy.cut("ddpjobs")
            await until(f"each {kind} has failed", partial(all_met, stage, kind))
            name = f"after-{kind.lower()}"
            await stage.create(name, nodes=1, suspend=True)
            await until(f"a job is seen after each {kind} has failed", partial(is_seen, stage, name))
        await until("the watch is open", lambda: any(each.resource == "ddpjobs" for each in stage.proxy.streams))
        assert await stage.operator.stop() == 0
        log = stage.operator.log()
        assert log.count("serving /metrics") == 1
        assert "Traceback" not in log
