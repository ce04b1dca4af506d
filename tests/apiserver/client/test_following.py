"""Jobs followed to their end, with an operator at work."""

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest

from ddpjob import DDPJob, JobFailed
from ddpjob_core.api.resources import CONFIG_MAPS
from tests.apiserver.client.program import JOB, Program
from tests.apiserver.controlplane import ControlPlane
from tests.apiserver.stage import Stage, all_run, phase_is, set_stage, until

pytestmark = pytest.mark.timeout(120)

REPORT = {
    "exitCode": 1,
    "failures": [
        {
            "rank": 1,
            "localRank": 0,
            "exitCode": 7,
            "time": 1.0,
            "message": "ValueError: bad batch",
            "traceback": "Traceback ...\nValueError: bad batch",
        }
    ],
}


async def test_a_script_is_run_to_its_end_and_what_it_brought_goes_with_it(
    control_plane: ControlPlane, tmp_path: Path, script: Path
) -> None:
    async with set_stage(control_plane, tmp_path) as stage:
        await stage.operator.start()
        ddpjob = Program(control_plane.admin_kubeconfig, stage.namespace)
        arguments = ("--name", "works", "--nodes", "2", "--image", "i", str(script), "5", "--lr", "0.1")
        following = asyncio.ensure_future(asyncio.to_thread(ddpjob, "run", *arguments))
        await until("the pods run", lambda: all_run(stage, "works", 2))
        program = await stage.admin.kube.get(CONFIG_MAPS, stage.namespace, "works-program")
        assert program["data"] == {"train.py": "print('hello')\n"}
        assert program["metadata"]["ownerReferences"][0]["name"] == "works"
        assert (await stage.job("works"))["spec"]["trainer"]["args"] == ["5", "--lr", "0.1"]
        stage.kubelet.exits.update({"works-a0-0": 0, "works-a0-1": 0})
        done = await following
        assert done.exit_code == 0, done.output
        assert "works has succeeded" in done.stderr
        assert (await asyncio.to_thread(ddpjob, "delete", "works", "--yes")).exit_code == 0
        await until("nothing is left of it", lambda: nothing_left(stage, "works"))


async def test_a_failed_job_exits_with_1_and_names_the_rank(control_plane: ControlPlane, tmp_path: Path) -> None:
    async with set_stage(control_plane, tmp_path) as stage:
        await stage.operator.start()
        ddpjob = Program(control_plane.admin_kubeconfig, stage.namespace)
        stage.kubelet.exits.update({"fails-a0-0": 0, "fails-a0-1": 1})
        stage.kubelet.termination_messages["fails-a0-1"] = json.dumps(REPORT)
        manifest = tmp_path / "fails.yaml"
        manifest.write_text(JOB.format(name="fails", more="restart: {maxRestarts: 0}"))
        done = await asyncio.to_thread(ddpjob, "run", "-f", str(manifest))
        assert done.exit_code == 1, done.output
        assert "rank 1 exited with code 7: ValueError: bad batch" in done.stderr
        await until("its event is there", lambda: has_event(stage, "fails", "RestartsNotAllowed"))
        story = await asyncio.to_thread(ddpjob.json, "why", "fails")
        assert (story["rootCause"]["rank"], story["rootCause"]["exitCode"]) == (1, 7)
        assert [event["reason"] for event in story["events"]][-1] == "RestartsNotAllowed"
        shown = (await asyncio.to_thread(ddpjob, "why", "fails")).stdout
        assert "ValueError: bad batch" in shown
        assert "What to do" in shown
        checks = await asyncio.to_thread(ddpjob.json, "doctor", "fails")
        assert {check["name"]: check["outcome"] for check in checks}["End"] == "FAIL"
        job = await asyncio.to_thread(
            partial(DDPJob, "fails", namespace=stage.namespace, kubeconfig=str(control_plane.admin_kubeconfig))
        )
        with pytest.raises(JobFailed, match=r"rank 1 exited with code 7(.|\n)*ValueError: bad batch"):
            await asyncio.to_thread(job.result)


async def test_a_job_is_resized_only_while_it_is_suspended(control_plane: ControlPlane, tmp_path: Path) -> None:
    async with set_stage(control_plane, tmp_path) as stage:
        await stage.operator.start()
        ddpjob = Program(control_plane.admin_kubeconfig, stage.namespace)
        await stage.create("digits", nodes=2)
        await until("the pods run", lambda: all_run(stage, "digits", 2))
        refused = await asyncio.to_thread(ddpjob, "scale", "digits", "--nodes", "3")
        assert refused.exit_code == 2
        assert "its size changes only while it is suspended" in refused.stderr
        assert "ddpjob suspend digits" in refused.stderr
        assert (await asyncio.to_thread(ddpjob, "suspend", "digits", "--wait")).exit_code == 0
        assert await phase_is(stage, "digits", "Suspended")
        assert (await asyncio.to_thread(ddpjob, "scale", "digits", "--nodes", "3")).exit_code == 0
        assert (await asyncio.to_thread(ddpjob, "resume", "digits")).exit_code == 0
        await until("more pods run", lambda: all_run(stage, "digits", 3))
        status = await asyncio.to_thread(ddpjob.json, "status", "digits")
        assert (status["nodesAskedFor"], status["attempt"]) == (3, 1)


async def has_event(stage: Stage, name: str, reason: str) -> bool:
    return reason in await stage.events(name)


async def nothing_left(stage: Stage, name: str) -> bool:
    return not await stage.children(name)
