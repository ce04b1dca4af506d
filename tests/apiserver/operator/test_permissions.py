"""The operator's permissions, compared with what a real API server has seen of it over the lives of two jobs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from ddpjob_core.api.release import ANNOTATION_RELEASE
from ddpjob_core.api.resources import LEASES, NETWORK_POLICIES
from ddpjob_core.api.scope import Scope
from ddpjob_operator.connection import connect
from hack.generate.permissions import rules_for_network_policies
from tests.apiserver.controlplane import BASE, ROOT, ControlPlane, Json
from tests.apiserver.faulty_proxy import FaultyProxy
from tests.apiserver.rights import grant
from tests.apiserver.stage import Admin, ForkedOperator, Kubelet, Stage, all_run, phase_is, pods_created, until

pytestmark = pytest.mark.timeout(240)

OF_JOBS = ROOT / "manifests/overlays/namespaces/role/role.yaml"
OF_LEASES = BASE / "role.yaml"

Permission = tuple[str, str]
"""Resource, with its subresource, and verb."""


def rules(role: Path) -> list[Json]:
    found: list[Json] = yaml.safe_load(role.read_text())["rules"]
    return found


def granted(role: Path) -> set[Permission]:
    return permissions(rules(role))


def permissions(listed: list[Json]) -> set[Permission]:
    return {(what, verb) for rule in listed for what in rule["resources"] for verb in rule["verbs"]}


class Account:
    """A service account with the Roles of the manifests and nothing else."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self.namespace, self.leases = plane.new_namespace(), plane.new_namespace()
        self.kubeconfig = plane.new_user(self.namespace)
        grant(plane, self.namespace, "nobody", *rules(OF_JOBS), *rules_for_network_policies())
        own = {"resourceNames": [Scope.of(self.namespace).lease]}
        of_leases = [{**rule, **own} if "resourceNames" in rule else rule for rule in rules(OF_LEASES)]
        grant(plane, self.leases, "nobody", *of_leases, home=self.namespace)
        self._begun = plane.audit_size

    def asked(self, namespace: str) -> tuple[set[Permission], list[str]]:
        """What it has asked for in a namespace, and the requests that were denied."""
        user = f"system:serviceaccount:{self.namespace}:nobody"
        used: set[Permission] = set()
        denied: list[str] = []
        for entry in self._plane.audit(namespace, user, self._begun):
            where = entry.get("objectRef")
            if where is None:
                # Discovery, which is everybody's.
                continue
            used.add(("/".join(filter(None, (where["resource"], where.get("subresource")))), entry["verb"]))
            if entry.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid":
                denied.append(f"{entry['verb']} {entry['requestURI']}")
        return used, denied


@contextlib.asynccontextmanager
async def working(plane: ControlPlane, account: Account, folder: Path) -> AsyncIterator[Stage]:
    """An operator with the account's rights, which is started, and pods that run."""
    async with contextlib.AsyncExitStack() as ends:
        admin, upstream = Admin(await connect(str(plane.admin_kubeconfig))), await connect(str(account.kubeconfig))
        ends.push_async_callback(admin.connection.close)
        ends.push_async_callback(upstream.close)
        proxy = await ends.enter_async_context(FaultyProxy(upstream))
        operator = ForkedOperator(
            proxy.write_kubeconfig(folder / "operator.json"),
            folder / "operator.log",
            f"--namespace={account.namespace}",
            f"--lease-namespace={account.leases}",
            "--network-policies",
        )
        operator.pod = "operator-0"
        ends.push_async_callback(operator.end)
        kubelet = Kubelet(admin, account.namespace)
        playing = asyncio.create_task(kubelet.run())
        ends.callback(playing.cancel)
        await operator.start()
        yield Stage(admin, account.namespace, proxy, operator, kubelet)


async def test_the_operator_uses_all_of_its_permissions_and_asks_for_no_others(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    account = Account(control_plane)
    async with working(control_plane, account, tmp_path) as stage:
        await live(stage, account)
        await stage.operator.stop()
    of_jobs = granted(OF_JOBS) | permissions(rules_for_network_policies())
    for allowed, namespace in ((of_jobs, account.namespace), (granted(OF_LEASES), account.leases)):
        used, denied = account.asked(namespace)
        assert denied == []
        assert used - allowed == set()
        assert allowed - used == set(), "granted, and not used"
    assert account.asked("") == (set(), [])


async def live(stage: Stage, account: Account) -> None:
    """All that happens to jobs: creation, resizing, restart, suspension, another operator, resumption, the end."""
    await stage.create("keyed", nodes=2, launcher="mpirun", ttlSecondsAfterFinished=0)
    await stage.create(
        "digits", nodes=2, elastic={"maxNodes": 3}, checkpoint={"size": "1Gi"}, ttlSecondsAfterFinished=0
    )
    for name in ("digits", "keyed"):
        await until(f"{name} runs", lambda name=name: all_run(stage, name, 2))
    # A user edits the Lease: its holder finds out whether it has been replaced.
    lease = Scope.of(account.namespace).lease
    await stage.admin.change(LEASES, account.leases, lease, lambda raw: raw["metadata"].update(annotations={}))
    await until("it goes on", lambda: is_marked(stage, account.leases, lease))
    # A user opens the job to everyone.
    await stage.admin.change(NETWORK_POLICIES, account.namespace, "digits", open_to_all)
    await until("it is closed again", lambda: is_closed(stage, "digits"))
    await stage.set_spec("digits", nodes=3)
    await until("it has grown", lambda: all_run(stage, "digits", 3))
    stage.kubelet.exits["digits-a0-1"] = 1
    await until("it was restarted", lambda: pods_created(stage, "digits", 1))
    await stage.set_spec("digits", suspend=True)
    await until("it is suspended", lambda: phase_is(stage, "digits", "Suspended"))
    stage.operator.kill()
    await stage.operator.gone()
    await stage.operator.start()
    # A process that does not know what it has made finds what is there.
    await stage.set_spec("digits", suspend=False)
    await until("it runs again", lambda: all_run(stage, "digits", 3))
    stage.kubelet.exits.update({f"digits-a2-{ordinal}": 0 for ordinal in range(3)})
    stage.kubelet.exits.update({f"keyed-a0-{ordinal}": 0 for ordinal in range(2)})
    for name in ("digits", "keyed"):
        await until(f"{name} was deleted", lambda name=name: is_gone(stage, name))


def open_to_all(raw: Json) -> None:
    raw["spec"]["ingress"] = [{}]


async def is_closed(stage: Stage, name: str) -> bool:
    policy = await stage.admin.kube.get(NETWORK_POLICIES, stage.namespace, name)
    return {} not in policy["spec"]["ingress"]


async def is_marked(stage: Stage, namespace: str, lease: str) -> bool:
    found = await stage.admin.kube.get(LEASES, namespace, lease)
    return ANNOTATION_RELEASE in (found["metadata"].get("annotations") or {})


async def is_gone(stage: Stage, name: str) -> bool:
    return not await stage.exists(name)
