"""What is advised for a job in a cluster has its counterpart on this machine."""

from pathlib import Path

from ddpjob.local.advice import LocalAdvice
from ddpjob_core.observations.advice import ClusterAdvice


def test_the_advice_for_a_cluster_has_its_like_for_this_machine() -> None:
    cluster, local = ClusterAdvice(), LocalAdvice(Path("/j"))
    assert (cluster.see_log("digits-a0-1"), local.see_log("digits-a0-1")) == (
        "see kubectl logs digits-a0-1",
        "see /j/digits-a0-1/log",
    )
    assert (cluster.check_rendezvous("digits-a0-0"), local.check_rendezvous("digits-a0-0")) == (
        "check kubectl logs digits-a0-0, the cluster's DNS and its network policies",
        "see /j/digits-a0-0/log",
    )
    assert (cluster.see_output("digits"), local.see_output("digits")) == (
        "see kubectl logs -l ddpjob.dev/job=digits",
        "see its output",
    )
    assert (cluster.resume(), local.resume()) == (
        "no pods while spec.suspend is true; set it to false to resume",
        "no processes are running; run the same command again to resume",
    )
