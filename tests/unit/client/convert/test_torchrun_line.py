"""The options of torchrun."""

from typing import Any

import pytest
from converting import about, line, spec
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpjob.convert.torchrun_line import split_endpoint
from ddpjob_core.api.constants import MAX_RANKS


@pytest.mark.usefixtures("whole_api")
@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("--nnodes=3", {"nodes": 3, "rendezvous": {"backend": "static"}}),
        ("--nnodes 1:4", {"nodes": 4, "rendezvous": {"backend": "static"}}),
        ("--nnodes=2:2 --rdzv-backend=c10d", {"nodes": 2, "rendezvous": {"backend": "c10d"}}),
        ("--nproc-per-node=auto", {"procsPerNode": "auto"}),
        ("--nproc_per_node cpu", {"procsPerNode": "auto"}),
        ("--rdzv-backend=static", {"rendezvous": {"backend": "static"}}),
        ("--rdzv_backend c10d", {"rendezvous": {"backend": "c10d"}}),
        ("--rdzv-backend=etcd-v2", {}),
        ("--rdzv-endpoint=[fd00::1]:29603", {"rendezvous": {"port": 29603}}),
        ("--rdzv-endpoint=fd00::1", {}),
        ("--rdzv-endpoint=localhost:0", {}),
        ("--rdzv-endpoint=localhost", {}),
        ("--master-port=80", {}),
        ("--master-port=9401", {}),
        ("--master-port=$PORT", {}),
        ("--rdzv-conf=join_timeout=900,keep_alive_interval=2", {
            "rendezvous": {"timeoutSeconds": 900, "conf": {"keep_alive_interval": "2"}}
        }),
        ("--rdzv-conf is_host=1,timeout=3,odd", {}),
        ("--max-restarts=2", {"restart": {"maxProcessRestarts": 2}}),
        ("--max_restarts 0", {"restart": {"maxProcessRestarts": 0}}),
        ("--rdzv-backend static --max-restarts=2", {"rendezvous": {"backend": "static"}}),
        ("--standalone --nnodes=4", {}),
        ("--role trainer -r 3 --tee=3 --log-dir /tmp/logs --local-addr 10.0.0.2 --start-method spawn --run-path", {}),
        ("--", {}),
    ],
)  # fmt: skip
def test_every_option_of_torchrun_goes_where_it_belongs(option: str, expected: dict[str, Any]) -> None:
    converted = line(f"torchrun {option} train.py --nnodes 9 -m")
    plain = {"nodes": 1, "procsPerNode": 1, "trainer": {"script": "train.py", "args": ["--nnodes", "9", "-m"]}}
    assert spec(converted) == {**plain, **expected}


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--nnodes=1:4", "a job has a fixed size: spec.nodes is the maximum, 4"),
        ("--nproc-per-node=gpu", "pass --gpus N"),
        ("--nproc-per-node=cpu", "which follows the CPUs in spec.trainer.resources"),
        ("--nproc-per-node=$N", "N is not known from the script: spec.procsPerNode is auto"),
        ("--rdzv-backend=etcd", "c10d is used instead"),
        ("--rdzv-endpoint=h:0", "port 0 means any free port"),
        ("--rdzv-endpoint=h:99999", "99999 is not a port from 1024 to 65535"),
        ("--master-port=$PORT", "PORT is not known from the script"),
        ("--rdzv-conf=is_host=1", "the pod of node 0 hosts the store"),
        ("--rdzv-conf=timeout=3", "spec.rendezvous.conf does not accept it"),
        ("--rdzv-conf=$CONF", "set it in spec.rendezvous.conf"),
        ("--max-restarts=$M", "not a number"),
        ("--tee 3", "ddpjob logs"),
        ("--redirects 3", "ddpjob logs"),
        ("--log_dir x", "ddpjob logs"),
        ("--role r", "only names the workers in torchrun's log"),
        ("--local-addr a", "by its own name"),
        ("--run-path", "started as a program"),
        ("--start-method fork", "torchrun's default"),
        ("--no-python", "the script is started with Python"),
    ],
)
def test_what_becomes_of_an_option_is_reported_with_the_option(option: str, message: str) -> None:
    assert message in about(line(f"torchrun {option} train.py"), option)


def test_options_that_another_one_makes_void_are_reported() -> None:
    converted = line("torchrun --standalone --nnodes=4 --rdzv-endpoint=h:29400 train.py")
    assert spec(converted)["nodes"] == 1
    assert "--standalone means one node" in about(converted, "--nnodes=4")
    assert "--standalone means one node" in about(converted, "--rdzv-endpoint")
    converted = line("torchrun --rdzv-backend=static --max-restarts=2 train.py")
    assert "static rendezvous cannot restart" in about(converted, "--max-restarts=2")
    converted = line("torchrun --rdzv-endpoint=h:30000 --master-port=30001 --rdzv-backend=c10d train.py")
    assert spec(converted)["rendezvous"]["port"] == 30000
    assert "port 30001 is not carried over" in about(converted, "--master-port")


def test_nodes_without_a_rendezvous_backend_meet_as_torchrun_lets_them() -> None:
    converted = line("torchrun --nnodes=2 --max-restarts=2 train.py")
    assert spec(converted)["rendezvous"] == {"backend": "static"}
    assert "restart" not in spec(converted)
    assert "with c10d, processes can restart" in about(converted, "no --rdzv-backend")
    assert "rendezvous" not in spec(line("torchrun --nnodes=2 --rdzv-backend=etcd train.py"))


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("10.0.0.1:29603", ("10.0.0.1", "29603")),
        ("[fd00::1]:29603", ("[fd00::1]", "29603")),
        ("[fd00::1]", ("[fd00::1]", "")),
        ("fd00::1", ("fd00::1", "")),
        ("host", ("host", "")),
        ("host:", ("host", "")),
    ],
)
def test_an_endpoint_is_taken_apart_at_its_port(endpoint: str, expected: tuple[str, str]) -> None:
    assert split_endpoint(endpoint) == expected


NAMES = st.sampled_from(["train.py", "/srv/my train.py", "a'b.py", 'q".py', "pkg/x.py"])
ARGUMENTS = st.lists(st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=8), max_size=4)


@st.composite
def options(draw: st.DrawFn) -> tuple[list[str], dict[str, Any]]:
    """Options in any order and spelling, and what they come to."""
    nodes = draw(st.integers(1, 10_000))
    processes = draw(st.integers(1, min(64, MAX_RANKS // nodes)))
    port, restarts = draw(st.integers(10_000, 65_535)), draw(st.integers(0, 9))
    given_options = draw(
        st.permutations([
            ("nnodes", str(nodes)),
            ("nproc-per-node", str(processes)),
            ("rdzv-backend", "c10d"),
            ("rdzv-endpoint", f"[fd00::1]:{port}"),
            ("max-restarts", str(restarts)),
            ("node-rank", "0"),
            ("rdzv-id", "7"),
        ])
    )  # fmt: skip
    words = []
    for name, value in given_options:
        spelled = f"--{name if draw(st.booleans()) else name.replace('-', '_')}"
        words += [f"{spelled}={value}"] if draw(st.booleans()) else [spelled, value]
    return words, {
        "nodes": nodes,
        "procsPerNode": processes,
        "rendezvous": {"backend": "c10d", "port": port},
        "restart": {"maxProcessRestarts": restarts},
    }


@given(options(), NAMES, ARGUMENTS)
@settings(max_examples=40)
def test_any_line_made_of_options_is_read_back_as_the_same_job(
    made: tuple[list[str], dict[str, Any]], program: str, arguments: list[str]
) -> None:
    words, expected = made
    found = spec(line("torchrun", *words, program, *arguments))
    trainer = {"script": program, **({"args": arguments} if arguments else {})}
    backend = {"backend": found["backend"]} if "backend" in found else {}
    assert found == {**expected, **backend, "trainer": trainer}
