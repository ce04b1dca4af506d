"""Whose the objects in the caches are."""

from dataclasses import replace
from datetime import UTC, datetime

from reconciling import Bench, pod_of

from ddpjob_core.api.kubernetes import ObjectName
from ddpjob_core.observations.observed import JobRecord, NetworkPolicyRecord, ServiceRecord

JOB = JobRecord("default", "digits", "job-uid", "1", 1, deleting=False, spec=None)
POLICY = NetworkPolicyRecord("default", "digits", "policy-uid", "1", "job-uid", "digits", "content")
SERVICE = ServiceRecord("default", "digits", "service-uid", "1", "job-uid", "digits")


def test_an_object_of_another_namespace_is_nobodys_own_whatever_its_controller_says(bench: Bench) -> None:
    caches = bench.caches
    caches.pods.seen(pod_of("digits-a0-0", owner="job-uid"))
    caches.pods.seen(replace(pod_of("digits-a0-1", owner="job-uid"), namespace="elsewhere", uid="forged"))
    caches.services.seen(replace(SERVICE, namespace="elsewhere"))
    assert [pod.uid for pod in caches.pods_of(JOB)] == ["digits-a0-0-uid"]
    assert caches.count_pods("default", "job-uid") == 1
    assert caches.service(JOB) is None
    assert caches.own(JOB) == {ObjectName("Pod", "digits-a0-0")}
    assert caches.foreign(JOB) == {}


def test_a_jobs_name_is_never_taken_for_the_uid_of_an_owner(bench: Bench) -> None:
    # A uid that begins with a letter is a valid name of a job.
    named = replace(pod_of("forged", owner="another"), job="job-uid")
    bench.caches.pods.seen(named)
    assert bench.caches.pods_of(JOB) == ()
    assert bench.caches.count_pods("default", "job-uid") == 0


async def test_forged_pods_of_another_namespace_are_not_observed(bench: Bench) -> None:
    for ordinal in range(2):
        forged = replace(pod_of(f"digits-a0-{ordinal}", owner="job-uid"), namespace="elsewhere", phase="Succeeded")
        bench.caches.pods.seen(forged)
    await bench.look()
    assert bench.observed[-1].pods == ()


def test_a_policy_is_the_jobs_own_by_the_uid_of_its_owner_and_otherwise_in_its_way(bench: Bench) -> None:
    bench.caches.network_policies.seen(replace(POLICY, namespace="elsewhere"))
    assert bench.caches.network_policy(JOB) is None
    bench.caches.network_policies.seen(replace(POLICY, uid="other", owner_uid="older"))
    assert bench.caches.network_policy(JOB) is None
    assert bench.caches.foreign(JOB) == {ObjectName("NetworkPolicy", "digits"): "DDPJob digits (uid older)"}
    bench.caches.network_policies.seen(replace(POLICY, resource_version="2"))
    assert bench.caches.network_policy(JOB) == replace(POLICY, resource_version="2")
    assert bench.caches.foreign(JOB) == {}
    ending = replace(POLICY, resource_version="3", deletion_time=datetime(2026, 1, 1, tzinfo=UTC))
    bench.caches.network_policies.seen(ending)
    assert bench.caches.network_policy(JOB) is None
