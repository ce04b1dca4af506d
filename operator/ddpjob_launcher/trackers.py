"""What makes a job one run of a tracker of experiments over all its attempts."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping


def name_run(variables: MutableMapping[str, str]) -> None:
    """Put the id of the job's run of Weights & Biases into rank 0's environment, unless the user has chosen one.

    Only there: each rank that wrote into the run would write over the others. A process that spawns the ranks of its
    node hands its environment on to all of them, so that it gets none. MLflow chooses the ids of its runs itself.
    """
    rank = variables.get("OMPI_COMM_WORLD_RANK") or variables.get("RANK")
    spawns = not variables.keys() & {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"}
    if rank != "0" or (spawns and variables.get("DDPJOB_PROCS_PER_NODE", "1") != "1"):
        return
    uid = variables.get("DDPJOB_UID")
    if uid and "WANDB_RUN_ID" not in variables:
        variables["WANDB_RUN_ID"] = uid
        variables.setdefault("WANDB_RESUME", "allow")
