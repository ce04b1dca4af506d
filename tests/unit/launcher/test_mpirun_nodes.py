"""The nodes as mpirun sees them: files, names, environment, and those that are missing."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from ddpjob_launcher.mpirun_nodes import MissingNodes, hostfile, mpirun_command, mpirun_environment, node_name


def test_mpirun_counts_ranks_in_the_order_of_the_ordinals(tmp_path: Path) -> None:
    assert hostfile(["10.0.0.9", "10.0.0.1"], 4) == "10.0.0.9 slots=4\n10.0.0.1 slots=4\n"
    command = mpirun_command("/usr/bin/mpirun", tmp_path, 8, ["python3", "train.py"])
    assert command[0] == "/usr/bin/mpirun"
    assert command[-2:] == ["python3", "train.py"]
    options = " ".join(command[1:-2])
    assert options == f"--hostfile {tmp_path} -np 8 --map-by slot --bind-to none"


@pytest.mark.parametrize(
    ("first", "ordinal", "nodes", "expected"),
    [
        ("digits-a0-0.digits.ml.svc.cluster.local.", 1, 2, "digits-a0-1.digits.ml.svc.cluster.local."),
        ("digits-a3-00.digits", 7, 12, "digits-a3-07.digits"),
        ("my-job-a0-000.my-job", 120, 200, "my-job-a0-120.my-job"),
    ],
)
def test_the_names_of_the_nodes_follow_from_that_of_node_0(first: str, ordinal: int, nodes: int, expected: str) -> None:
    assert node_name(first, ordinal, nodes) == expected


def test_of_all_nodes_that_are_waited_for_the_first_is_shown_with_the_number_of_the_others() -> None:
    shown: list[tuple[str, str]] = []
    page = SimpleNamespace(show=lambda *words: shown.append(words))
    missing = MissingNodes(page)
    missing.of(7).show("NodeNotReached", "seven")
    missing.of(3).show("NameNotResolved", "three")
    missing.of(7).show("NodeNotReached", "seven again")
    missing.found(3)
    missing.found(7)
    assert shown == [
        ("NodeNotReached", "seven"),
        ("NameNotResolved", "three, and 1 more"),
        ("NameNotResolved", "three, and 1 more"),
        ("NodeNotReached", "seven again"),
    ]


def test_open_mpi_keeps_a_connection_to_each_node_however_many_there_are() -> None:
    environment = mpirun_environment(["ssh", "-F", "config"], 200)
    for prefix, name in (("OMPI_MCA", "plm_rsh"), ("PRTE_MCA", "plm_ssh")):
        assert environment[f"{prefix}_{name}_agent"] == "ssh -F config"
        assert environment[f"{prefix}_{name}_num_concurrent"] == "200"
    assert environment["PRTE_MCA_prte_leave_session_attached"] == "1"
