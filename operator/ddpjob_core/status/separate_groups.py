"""The condition SeparateGroups: a job has succeeded whose processes were not one process group.

Then they have not trained one model together: each group has trained its own, and so has each process in no group.
"""

from ddpjob_core.api.status import ConditionType
from ddpjob_core.observations.observed import Terminated
from ddpjob_core.observations.situation import Situation
from ddpjob_core.status.conditions import Fact


def separate_groups(situation: Situation) -> tuple[Fact, ...]:
    """What is to be said of the groups that the nodes of an attempt reported; nothing if there may have been one."""
    ends = [node.trainer for node in situation.attempt.nodes if node is not None]
    reports = [end.report for end in ends if isinstance(end, Terminated) and end.report is not None]
    sizes = [report.group_size for report in reports if report.group_size is not None]
    job = max((report.job_size for report in reports if report.job_size is not None), default=0)
    if not sizes or min(sizes) >= job:
        return ()
    size = min(sizes)
    groups = "each worked by itself" if size == 1 else f"a process group had only {size} of them"
    message = (
        f"{job} processes were started, but {groups}: they did not train one model together but several, and what "
        "was saved is one of these. Let the program join all of them (torch.distributed.init_process_group with "
        "RANK and WORLD_SIZE as they are given), or set spec.nodes and spec.procsPerNode to what it uses"
    )
    return (Fact(ConditionType.SEPARATE_GROUPS, "True", "GroupSmallerThanJob", message),)
