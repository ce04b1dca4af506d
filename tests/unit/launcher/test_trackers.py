"""One run of a tracker per job, and only for the rank that writes into it."""

import pytest

from ddpjob_launcher.trackers import name_run

UID = {"DDPJOB_UID": "uid"}
NAMED = {"WANDB_RUN_ID": "uid", "WANDB_RESUME": "allow"}


@pytest.mark.parametrize(
    ("variables", "added"),
    [
        ({"RANK": "0", "LOCAL_RANK": "0", "DDPJOB_PROCS_PER_NODE": "4"}, NAMED),
        ({"RANK": "1", "LOCAL_RANK": "1"}, {}),
        ({"RANK": "4", "LOCAL_RANK": "0"}, {}),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, NAMED),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}, {}),
        # Plain python: the rank of the node.
        ({"RANK": "0", "DDPJOB_PROCS_PER_NODE": "1"}, NAMED),
        ({"RANK": "0", "DDPJOB_PROCS_PER_NODE": "2"}, {}),
        ({}, {}),
        # What the user set stays.
        ({"RANK": "0", "LOCAL_RANK": "0", "WANDB_RUN_ID": "mine"}, {}),
        ({"RANK": "0", "LOCAL_RANK": "0", "WANDB_RESUME": "must"}, {"WANDB_RUN_ID": "uid"}),
        ({"RANK": "0", "LOCAL_RANK": "0", "DDPJOB_UID": ""}, {}),
    ],
)
def test_rank_0_alone_gets_the_id_of_the_jobs_run(variables: dict[str, str], added: dict[str, str]) -> None:
    given = {**UID, **variables}
    named = dict(given)
    name_run(named)
    assert named == {**given, **added}
