"""Jobs that the API server accepts and that must harm nobody but themselves."""

import asyncio
import http.client
import ssl
from functools import partial
from pathlib import Path

import pytest

from tests.apiserver.client.program import Program
from tests.apiserver.controlplane import ControlPlane
from tests.apiserver.stage import ForkedOperator, Stage, phase_is, set_stage, until

pytestmark = pytest.mark.timeout(240)

JOBS = "/apis/ddpjob.dev/v1alpha1/namespaces/{}/ddpjobs"


def create_deep(plane: ControlPlane, namespace: str, name: str, levels: int) -> None:
    """Create a job whose template is nested so deep that no JSON library of ours could write it."""
    template = '{"x":' * levels + "1" + "}" * levels
    body = (
        f'{{"apiVersion":"ddpjob.dev/v1alpha1","kind":"DDPJob","metadata":{{"name":"{name}"}},'
        f'"spec":{{"trainer":{{"image":"i","script":"t.py"}},"template":{{"spec":{template}}}}}}}'
    )
    context = ssl.create_default_context(cafile=str(plane.admin.ca))
    connection = http.client.HTTPSConnection("127.0.0.1", plane.admin.port, context=context, timeout=30)
    headers = {"Authorization": f"Bearer {plane.admin.token}", "Content-Type": "application/json"}
    try:
        connection.request("POST", JOBS.format(namespace), body, headers)
        answer = connection.getresponse()
        assert answer.status == http.HTTPStatus.CREATED, answer.read()
    finally:
        connection.close()


async def is_refused(stage: Stage, name: str, said: str) -> bool:
    conditions = (await stage.status(name)).get("conditions") or []
    return any(
        (condition["type"], condition["reason"]) == ("Failed", "InvalidSpec") and said in condition["message"]
        for condition in conditions
    )


async def test_a_template_that_is_nested_too_deep_or_too_large_fails_its_own_job_and_ends_no_watch(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with set_stage(control_plane, tmp_path) as stage:
        # Not behind the stage's proxy, which reads what it passes on by the usual means.
        operator = ForkedOperator(
            control_plane.operator_kubeconfig, tmp_path / "operator.log", f"--namespace={stage.namespace}"
        )
        stage.operator = operator
        said = "spec.template: must not be nested more than 32 levels deep"
        # One is in the first LIST, the others come by the watch.
        create_deep(control_plane, stage.namespace, "listed", 9_900)
        await operator.start()
        await until("the listed one is refused", partial(is_refused, stage, "listed", said))
        for levels in (600, 9_900):
            create_deep(control_plane, stage.namespace, f"watched-{levels}", levels)
            await until(f"{levels} levels are refused", partial(is_refused, stage, f"watched-{levels}", said))
        await stage.create("lists", nodes=80, template={"spec": {"x": [[]] * 100_000}})
        said = "spec.template: must not hold more than 10,000 values"
        await until("100,000 lists are refused", partial(is_refused, stage, "lists", said))
        resources = {"limits": {"cpu": "9" * 30_000 + "x"}}
        await stage.create("digits", template={"spec": {"containers": [{"name": "trainer", "resources": resources}]}})
        await until("30,000 digits are refused", partial(is_refused, stage, "digits", "resources.limits[cpu]: must be"))
        await stage.create("healthy", nodes=2)
        await until("another job runs", partial(phase_is, stage, "healthy", "Running"))
        ddpjob = Program(control_plane.admin_kubeconfig, stage.namespace)
        listed = await asyncio.to_thread(ddpjob, "status")
        assert {"healthy", "listed", "watched-9900", "digits"} <= {
            line.split()[0] for line in listed.stdout.splitlines()
        }
        explained = await asyncio.to_thread(ddpjob, "why", "listed")
        assert "must not be nested more than 32 levels deep" in explained.stdout
        assert await operator.stop() == 0
        assert "Traceback" not in operator.log()
