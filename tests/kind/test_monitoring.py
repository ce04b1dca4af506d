"""A real Prometheus answers every query of the dashboards and of the alert rules while jobs run and fail."""

import json
import re
import signal
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from jobs import TRAINER_IMAGE, ddpjob, program, scripted
from kubectl import Kubectl, wait_until
from prometheus import Prometheus, prometheus_in
from steady import CLAIM, claim, trains

from hack.cache import BUILD, ROOT
from hack.generate.monitoring.queries import Target, annotations, fill, legend, operands, rules, targets

JOB = ROOT / "manifests/grafana/job.json"
FLEET = ROOT / "manifests/grafana/fleet.json"
RULES = ROOT / "manifests/prometheus/rules.yaml"
MONITORING = "ddpjob-test-monitoring"
# What the picture in docs/monitoring.md is drawn from.
PICTURE_DATA = BUILD / "results/job-dashboard.json"
# Panels and annotations that show nothing of a job to which nothing happens, with the job to which it does.
FAULTS = {
    "Last failure": "failing",
    "Restart of all pods": "failing",
    "Restart of worker processes": "digits",
    "Restarts of jobs": "failing",
    "Stalled jobs": "slow",
    "Slow rank": "slow",
}
# On a busy machine a rank of another job may be slow in truth, on the node with more to do.
MAY_HAPPEN_TO_OTHERS = {"Slow rank"}
NEEDS_A_GPU = {"GPU memory"}
# No job fails of what is not finite here: the rule is asked about another class of failures.
FAILS_OTHERWISE = ('class="NotFinite"', 'class="Error"')

pytestmark = pytest.mark.timeout(600)

# The example, at a pace at which a test can kill one of its workers in the middle on any machine.
PACED_DIGITS = """
import time
from collections.abc import Iterator
from datetime import datetime
from ddpjob_trainer.examples import digits

def paced(model, batch, loss=digits.cross_entropy):
    time.sleep(0.02)
    return loss(model, batch)

digits.cross_entropy = paced
digits.main()
"""

# Rank 1 takes its time in every forward pass, so that rank 0 waits for it; after some steps the loss is not finite.
SLOW_RANK = """
import itertools, time, torch
from torch.utils.data import TensorDataset
from ddpjob_trainer import Settings, configure_logging, current_environment, process_group, train

environment = current_environment()
configure_logging(environment)
with process_group(environment) as group:
    torch.manual_seed(0)
    steps = itertools.count()

    def loss(model, batch):
        time.sleep(0.1 * group.rank)
        return model(batch[0]).square().mean() * (float("nan") if next(steps) > 30 else 1)

    model = torch.nn.Linear(4, 1)
    train(
        model,
        torch.optim.SGD(model.parameters(), lr=0.01),
        loss,
        TensorDataset(torch.randn(16000, 4)),
        Settings(total_epochs=1, batch_size=4, log_every=1, on_nan="warn"),
        group=group,
    )
"""


def jobs() -> list[dict[str, Any]]:
    deadline = {"seconds": 5, "action": "Warn"}
    slow = scripted("slow", config_map="slow", nodes=1, procs=2, progressDeadline=deadline, gracePeriodSeconds=1)
    digits = scripted("digits", config_map="digits", checkpoint={"claimName": CLAIM})
    digits["spec"]["trainer"]["args"] = ["--total-epochs", "14", "--save-every", "5", "--batch-size", "32"]
    for job in (slow, digits):
        job["spec"]["trainer"]["image"] = TRAINER_IMAGE
    failing = ddpjob("failing", nodes=1, trainer={"image": TRAINER_IMAGE, "command": ["false"]})
    return [claim(), program("digits", PACED_DIGITS), program("slow", SLOW_RANK), digits, slow, failing]


def variables(kubectl: Kubectl, job: str) -> dict[str, str]:
    return {"namespace": kubectl.namespace, "ddpjob": job, "__rate_interval": "20s"}


def unanswered(prometheus: Prometheus, wanted: list[Target], values: dict[str, str], since: float) -> list[str]:
    """Those of the queries that have no value at any time."""
    return [
        f"{target.title}: {expression}"
        for target in wanted
        if not prometheus.range(expression := fill(target.expression, values), since)
    ]


@pytest.fixture
def monitoring(operator: datetime) -> Iterator[Kubectl]:
    """The namespace whose pods the operator's flags let read the metrics of trainings."""
    assert operator
    cluster, labels = Kubectl(), {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": MONITORING, "labels": labels}})
    yield Kubectl(MONITORING)
    # Another run finds it gone.
    cluster("delete", "namespace", MONITORING)


def test_every_query_of_dashboards_and_rules_has_an_answer(kubectl: Kubectl, monitoring: Kubectl) -> None:
    with prometheus_in(monitoring) as prometheus:
        since = time.time()
        kubectl.apply(*jobs())
        things_happen(kubectl, prometheus)
        job_queries = [*targets(JOB), *annotations(JOB)]
        fleet_queries = targets(FLEET)
        ordinary = [each for each in job_queries if each.title not in FAULTS and each.title not in NEEDS_A_GPU]
        assert unanswered(prometheus, ordinary, variables(kubectl, "digits"), since) == []
        assert unanswered(prometheus, fleet_queries, variables(kubectl, ".*"), since) == []
        for title, job in FAULTS.items():
            faulty = [each for each in (*job_queries, *fleet_queries) if each.title == title]
            assert faulty, title
            assert unanswered(prometheus, faulty, variables(kubectl, job), since) == []
            others = {"digits", "failing", "slow"} - {job, "digits" if title == "Restarts of jobs" else ""}
            for other in others if title not in MAY_HAPPEN_TO_OTHERS else ():
                assert len(unanswered(prometheus, faulty, variables(kubectl, other), since)) == len(faulty), (
                    title,
                    other,
                )
        for target in (each for each in job_queries if each.title in NEEDS_A_GPU):
            assert prometheus.range(fill(target.expression, variables(kubectl, "digits")), since) == []
        the_operator_has_counted(prometheus, since)
        the_rules_judge(kubectl, prometheus, since)
        keep_for_the_picture(prometheus, variables(kubectl, "digits"), since)
        series_end_with_their_job(kubectl, prometheus)


def things_happen(kubectl: Kubectl, prometheus: Prometheus) -> None:
    """A worker process is killed, a rank is stopped, a program fails, and a training succeeds."""
    own = f'namespace="{kubectl.namespace}"'
    # Not by the job's status, which may be five seconds old.
    wait_until(
        lambda: prometheus.now(f'ddpjob_trainer_step{{{own}, ddpjob="digits"}} > 70'),
        "digits to make steps after a checkpoint",
        120,
        lambda: kubectl.story("digits"),
    )
    kubectl.signal_rank("digits-a0-1", 1, signal.SIGKILL)
    wait_until(
        lambda: prometheus.now(f'ddpjob_operator_job_slowest_rank_factor{{{own}, ddpjob="slow", rank="1"}} > 1'),
        "the slow rank to be named",
        90,
        lambda: kubectl.story("slow"),
    )
    trains(kubectl, "slow", beyond=100)
    kubectl.signal_rank("slow-a0-0", 1, signal.SIGSTOP)
    wait_until(
        lambda: prometheus.now(f'ddpjob_operator_job_stalled{{{own}, ddpjob="slow"}} == 1'),
        "the stall to be scraped",
        60,
        lambda: kubectl.story("slow"),
    )
    kubectl.wait_for_phase("failing", "Failed")
    kubectl.wait_for_phase("digits", "Succeeded", timeout=300)
    wait_until(
        lambda: prometheus.now(f'ddpjob_operator_job_phase{{{own}, phase="Succeeded"}}'), "the success to be scraped"
    )


def the_operator_has_counted(prometheus: Prometheus, since: float) -> None:
    for title, what in (
        ("Failures by class", {"class": "Error"}),
        ("Restarts", {"kind": "process"}),
        ("Restarts", {"kind": "counted"}),
    ):
        (target,) = (each for each in targets(FLEET) if each.title == title)
        found = prometheus.range(fill(target.expression, {"__rate_interval": "20s"}), since)
        (values,) = (values for labels, values in found if labels == what)
        assert max(value for _, value in values) > 0, (title, what)


def the_rules_judge(kubectl: Kubectl, prometheus: Prometheus, since: float) -> None:
    own = f'namespace="{kubectl.namespace}"'

    def fired(expression: str) -> set[str]:
        found = prometheus.range(expression, since)
        return {labels["ddpjob"] for labels, _ in found if labels.get("namespace") == kubectl.namespace}

    wanted = rules(RULES)
    for name, expression in wanted.items():
        for operand in operands(expression):
            # No watch is refused here; those that are not have the same labels.
            asked = operand.replace('code!="200"', 'code="200"').replace(*FAILS_OTHERWISE)
            # The operator of all namespaces has no series for one.
            assert bool(prometheus.range(asked, since)) == (name != "DDPJobOperatorNamespaceNotServed"), asked
    assert fired(wanted["DDPJobStalled"]) == {"slow"}
    assert fired(wanted["DDPJobCrashLooping"]) == {"failing"}
    assert fired(wanted["DDPJobNotFinite"].replace(*FAILS_OTHERWISE)) == {"failing", "slow"}
    assert fired(wanted["DDPJobNotFinite"]) == {"slow"}
    assert "slow" in fired(wanted["DDPJobSlowRank"])
    slow = (kubectl.namespace, "slow")
    # Seconds in place of minutes and of half an hour. A process' first step may stand out so for a moment.
    found = prometheus.range(wanted["DDPJobStraggler"].replace("5m", "5s"), since)
    # Of this job alone: on a busy machine a rank of another job is slow in truth, on the node with more to do.
    ranks = [
        (labels["rank"], len(values)) for labels, values in found if (labels["namespace"], labels["ddpjob"]) == slow
    ]
    lasting = dict(ranks)
    assert lasting.get("0", 0) <= 5
    assert lasting["1"] > 10
    assert "slow" in fired(wanted["DDPJobNoProgress"].replace("30m", "4s").replace("1800", "4"))
    before = since - 3600
    assert prometheus.range(wanted["DDPJobOperatorDown"], before, before + 1), "there was no Prometheus then"
    for name in ("DDPJobOperatorDown", "DDPJobOperatorStuck", "DDPJobOperatorWatchErrors"):
        assert prometheus.range(wanted[name], since) == [], name

    loaded = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert {rule["name"]: rule["health"] for rule in loaded} == dict.fromkeys(wanted, "ok")
    firing = prometheus.now(f'ALERTS{{alertname="DDPJobCrashLooping", alertstate="firing", {own}}}')
    assert [labels["ddpjob"] for labels in firing] == ["failing"]


def keep_for_the_picture(prometheus: Prometheus, values: dict[str, str], since: float) -> None:
    def series(target: Target) -> list[dict[str, Any]]:
        found = prometheus.range(fill(target.expression, values), since)
        return [{"name": legend(target.legend, labels), "values": points} for labels, points in found]

    kept = [
        {"title": target.title, "unit": target.unit, "series": series(target), "annotation": target in annotations(JOB)}
        for target in (*targets(JOB), *annotations(JOB))
    ]
    PICTURE_DATA.parent.mkdir(parents=True, exist_ok=True)
    PICTURE_DATA.write_text(json.dumps({"since": since, "targets": kept}))


def series_end_with_their_job(kubectl: Kubectl, prometheus: Prometheus) -> None:
    series = f'{{__name__=~"ddpjob_operator_job_.*", namespace="{kubectl.namespace}", ddpjob="failing"}}'
    assert len(prometheus.now(series)) > 5
    kubectl("delete", "ddpjob", "failing")
    wait_until(lambda: not prometheus.now(series), "the series of a deleted job to end", 30)


def test_the_kustomizations_build(kubectl: Kubectl) -> None:
    built = kubectl("kustomize", str(ROOT / "manifests/overlays/prometheus-operator"))
    assert re.findall(r"^kind: (PodMonitor|PrometheusRule|Deployment)$", built, re.MULTILINE).count("PodMonitor") == 2
    maps = kubectl("kustomize", str(ROOT / "manifests/grafana"))
    assert 'grafana_dashboard: "1"' in maps
    # What the API server takes as a ConfigMap; a dry run stores nothing.
    assert "ddpjob-dashboards" in kubectl(
        "create",
        "--dry-run=server",
        "-o",
        "name",
        "-f",
        "-",
        stdin=maps.replace("namespace: ddpjob-system", f"namespace: {kubectl.namespace}"),
    )
