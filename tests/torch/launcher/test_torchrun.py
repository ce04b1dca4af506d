"""The launcher with the real torchrun: two nodes on loopback, every way a worker can end.

Programs that need no process group leave torch out: what is tested is the launcher, and they start immediately.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from launching import WITHOUT_WRAPPER, Job, launchers

from tests.ports import free_port

pytest.importorskip("torch")

SUM_OF_RANKS = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank()])
dist.all_reduce(total)
where = f"at {os.environ['MASTER_ADDR']} by {os.environ['GLOO_SOCKET_IFNAME']}"
os.write(1, f"sum {total.item()} {where}\\n".encode())
dist.barrier()
os._exit(0)
"""

# The threads of gloo still release tensors when the program ends.
ENDS_BEFORE_GLOO = """
import torch, torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
for _ in range(3000):
    dist.all_reduce(torch.ones(10_000), async_op=True)
"""

ALL_REDUCE = """
import json, os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
if dist.get_rank() == 0:
    with open(os.environ["DDPJOB_PROGRESS_FILE"], "w") as file:
        json.dump({"step": 3, "totalSteps": 10}, file)
names = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "MASTER_ADDR", "OMP_NUM_THREADS")
print(json.dumps({
    "sum": total.item(), "pet": [name for name in os.environ if name.startswith("PET_")],
    "mpi": dist.is_mpi_available(),
    **{name: os.environ.get(name) for name in names},
}) + "\\n", end="")
dist.barrier()
dist.destroy_process_group()
"""

# Rank 3 ends as the first argument says, once all ranks run; the others wait for it.
ONE_ENDS = """
import os, pathlib, signal, sys, time
def end(how):
    if how == "raise": raise ValueError("bad batch \\u00e9")
    if how == "exit": sys.exit(7)
    if how == "kill": os.kill(os.getpid(), signal.SIGKILL)
    if how == "segv":
        import ctypes
        ctypes.string_at(0)
    if how == "record":
        from torch.distributed.elastic.multiprocessing.errors import record
        record(end)("raise")
rank = os.environ["RANK"]
pathlib.Path(f"up-{rank}").touch()
while not all(os.path.exists(f"up-{r}") for r in range(int(os.environ["WORLD_SIZE"]))): time.sleep(0.01)
if rank == "3": end(sys.argv[1])
signal.pause()
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    with launchers(tmp_path, monkeypatch) as job:
        yield job


# A job that succeeds


@pytest.mark.parametrize(
    ("backend", "wrapper"),
    [
        ("c10d", "image's wrapper"),
        pytest.param("c10d", "no wrapper", marks=pytest.mark.full),
        ("static", "no wrapper"),
    ],
)
def test_two_nodes_train_with_the_rank_of_their_ordinal(job: Job, backend: str, wrapper: str) -> None:
    more: dict[str, Any] = {}
    if wrapper == "no wrapper":
        (job.folder / "site").mkdir()
        (job.folder / "site" / "sitecustomize.py").write_text(WITHOUT_WRAPPER)
        more = {"PYTHONPATH": str(job.folder / "site")}
    first, second = job.both(job.program(ALL_REDUCE), backend=backend, fresh=True, **more)
    assert (first.end(), second.end()) == (0, 0), first.output + second.output
    for group, node in enumerate((first, second)):
        ranks = sorted(
            (json.loads(line) for line in node.output.splitlines() if line.startswith('{"sum"')),
            key=lambda worker: int(worker["RANK"]),
        )
        assert ranks == [
            {
                "sum": 6,
                "pet": [],
                "mpi": False,
                "RANK": str(2 * group + local),
                "LOCAL_RANK": str(local),
                "GROUP_RANK": str(group),
                "WORLD_SIZE": "4",
                "MASTER_ADDR": "127.0.0.1",
                "OMP_NUM_THREADS": ranks[0]["OMP_NUM_THREADS"],
            }
            for local in range(2)
        ]
        assert int(ranks[0]["OMP_NUM_THREADS"]) >= 1
    assert f"job digits, attempt 0, node 1 of 2, processes 2, rendezvous {backend}, torch " in second.output
    assert first.report == {"exitCode": 0, "progress": {"step": 3, "totalSteps": 10}}
    assert second.report == {"exitCode": 0}
    # The host of the store leaves last: else the others end their success with errors about the exit barrier.
    assert "Traceback" not in first.output + second.output
    assert "store" not in second.output.lower()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("backend", ["c10d", pytest.param("static", marks=pytest.mark.full)])
def test_two_nodes_meet_at_an_ipv6_address(job: Job, backend: str) -> None:
    program = job.program(SUM_OF_RANKS)
    more: dict[str, Any] = {"PET_LOCAL_ADDR": "::1", "DDPJOB_RENDEZVOUS_HOST": "::1"}
    if backend == "static":
        more["PET_MASTER_ADDR"] = "::1"
    nodes = job.both(program, backend=backend, **more)
    assert [node.end() for node in nodes] == [0, 0], nodes[0].output + nodes[1].output
    for node in nodes:
        assert node.output.count("sum 6 at ::1 by lo\n") == 2, node.output


# tests/kind/test_host_network.py has it on nodes.
@pytest.mark.full
def test_on_the_host_network_gloo_uses_the_interface_of_the_default_route(job: Job) -> None:
    routes = [line.split() for line in Path("/proc/net/route").read_text().splitlines()]
    interface = next(words[0] for words in routes if words[1] == words[7] == "00000000")
    program = job.program(SUM_OF_RANKS)
    nodes = job.both(program, processes=1, DDPJOB_HOST_NETWORK="1", GLOO_SOCKET_IFNAME="")
    assert [node.end() for node in nodes] == [0, 0], nodes[0].output + nodes[1].output
    for node in nodes:
        assert f"ddpjob: host network: gloo uses {interface}," in node.output
        assert f"sum 1 at 127.0.0.1 by {interface}\n" in node.output


def test_a_program_that_ends_before_the_threads_of_gloo_succeeds(job: Job) -> None:
    node = job.start(0, 1, job.program(ENDS_BEFORE_GLOO), processes=6)
    assert node.end() == 0, node.output
    # Each was a group of its own.
    assert node.report == {"exitCode": 0, "groupSize": 1, "jobSize": 6}
    assert node.output.count("ddpjob: WARNING: a process group of 1 in a job of 6 processes") == 6 + 1


@pytest.mark.parametrize(
    ("group", "report"),
    [
        pytest.param("", {"groupSize": 1, "jobSize": 2}, marks=pytest.mark.full),
        ("dist.init_process_group()", {"groupSize": 1, "jobSize": 2}),
        pytest.param(
            "dist.init_process_group('gloo'); dist.barrier(dist.new_group([0, 1]))", {}, marks=pytest.mark.full
        ),
    ],
    ids=["no group", "a group that is not used", "a group that is used"],
)
def test_processes_that_train_by_themselves_are_reported_as_groups_of_one(
    job: Job, group: str, report: dict[str, int]
) -> None:
    trains = "import torch, torch.distributed as dist\ntorch.optim.AdamW([torch.zeros(1, requires_grad=True)])\n"
    node = job.start(0, 1, job.program(trains + group))
    assert node.end() == 0, node.output
    assert node.report == {"exitCode": 0, **report}


def test_processes_that_neither_train_nor_have_a_group_are_not_reported(job: Job) -> None:
    node = job.start(0, 1, job.program("import torch"))
    assert node.end() == 0, node.output
    assert node.report == {"exitCode": 0}


def test_the_backend_mpi_under_torchrun_fails_and_says_who_has_mpi(job: Job) -> None:
    program = "import torch.distributed as dist\ndist.init_process_group('mpi')"
    node = job.start(0, 1, job.program(program), processes=1)
    assert node.end() == 1, node.output
    assert "set spec.launcher to mpirun, or let the program use gloo" in node.report["failures"][0]["message"]


def test_a_job_of_one_node_needs_no_name_service(job: Job) -> None:
    program = job.program("import os; print('at', os.environ['MASTER_ADDR'])")
    more: dict[str, Any] = {
        "DDPJOB_RENDEZVOUS_HOST": "digits-a0-0.digits.invalid",
        "PET_LOCAL_ADDR": "digits-a0-0.digits.invalid",
        "PET_RDZV_ENDPOINT": "digits-a0-0.digits.invalid:29500",
    }
    node = job.start(0, 1, program, processes=1, **more)
    assert node.end() == 0, node.output
    assert "at 127.0.0.1\n" in node.output


@pytest.mark.parametrize("kind", ["script", "module"])
def test_a_program_sees_what_it_sees_under_torchrun(job: Job, kind: str) -> None:
    job.program(
        "import os, sys\n"
        "mine = ('DDPJOB_', 'TORCHELASTIC_', 'MASTER_', 'USE_LIBUV', 'OMP_', 'TMPDIR')\n"
        "env = sorted(n + '=' + v for n, v in os.environ.items() if not n.startswith(mine))\n"
        "print('SEEN', sys.argv, sys.path, __name__, __file__, __spec__ and __spec__.name, os.getcwd(), env)\n"
    )
    name = "train" if kind == "module" else "train.py"
    node = job.start(0, 1, name, "--lr", "0.1", "x y", kind=kind, processes=1, fresh=True)
    assert node.end() == 0, node.output
    torchrun = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=1", f"--master-port={free_port()}"]
        + ["-m"] * (kind == "module")
        + [name, "--lr", "0.1", "x y"],
        cwd=job.folder,
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    seen, expected = (
        [line for line in output.splitlines() if line.startswith("SEEN")] for output in (node.output, torchrun.stdout)
    )
    assert seen == expected != []


# A worker that fails


@pytest.mark.parametrize(
    ("how", "failure", "message", "traceback"),
    [
        ("raise", {"exitCode": 1, "errorType": "ValueError"}, "ValueError: bad batch é", 'raise ValueError("bad batch'),
        (
            "record",
            {"exitCode": 1, "errorType": "ValueError"},
            "ValueError: bad batch é",
            'raise ValueError("bad batch',
        ),
        ("exit", {"exitCode": 7, "errorType": "SystemExit"}, "SystemExit: 7", "sys.exit(7)"),
        ("kill", {"signal": "SIGKILL"}, "killed by SIGKILL", ""),
        ("segv", {"signal": "SIGSEGV"}, "Fatal Python error: Segmentation fault", "train.py"),
    ],
)
def test_the_report_names_the_rank_that_failed_and_how(
    job: Job, how: str, failure: dict[str, Any], message: str, traceback: str
) -> None:
    before = time.time()
    first, second = job.both(job.program(ONE_ENDS), how)
    code = second.end()
    assert code == failure.get("exitCode", 128 + signal.Signals[failure.get("signal", "SIGKILL")]), second.output
    report = second.report
    assert report["exitCode"] == code
    (failed,) = report["failures"]
    assert failed["rank"] == 3
    assert failed["localRank"] == 1
    assert {key: failed[key] for key in ("exitCode", "signal", "errorType", "oom") if key in failed} == failure
    assert failed["message"] == message
    assert traceback in failed.get("traceback", "")
    assert before - 1 < failed["time"] < time.time() + 1
    assert f"ddpjob: rank 3: {message}" in second.output
    # The first node's workers wait in no collective and notice nothing; a real job's would lose a connection.
    first.stop()
    assert first.end() == 143


def test_a_node_whose_rank_failed_names_it_though_another_node_has_ended_first(job: Job) -> None:
    program = job.program(
        "import atexit, os, pathlib, sys, time\n"
        "def slowly():\n"
        "    pathlib.Path('raised').touch()\n"
        "    time.sleep(2)\n"
        "if os.environ['RANK'] == '1':\n"
        "    atexit.register(slowly)\n"
        "    raise ValueError('bad batch')\n"
        "while not os.path.exists('raised'): time.sleep(0.01)\n"
        "sys.exit(3)\n"
    )
    first, second = job.both(program, processes=1)
    assert (first.end(), second.end()) == (3, 1), first.output + second.output
    assert "RendezvousConnectionError" in second.output
    assert (second.report["failures"][0]["rank"], second.report["failures"][0]["message"]) == (
        1,
        "ValueError: bad batch",
    )


def test_who_was_killed_comes_before_who_lost_the_connection_to_it(job: Job) -> None:
    node = job.start(
        0,
        1,
        job.program(
            "import os, pathlib, signal, sys, time\n"
            "if os.environ['RANK'] == '1':\n"
            "    while not os.path.exists('lost'): time.sleep(0.001)\n"
            "    os.kill(os.getpid(), signal.SIGKILL)\n"
            "pathlib.Path('lost').touch()\n"
            "raise ConnectionError('lost')\n"
        ),
        PET_MONITOR_INTERVAL="2",
    )
    assert node.end() == 137, node.output
    assert [failure["rank"] for failure in node.report["failures"]] == [1, 0]


@pytest.mark.parametrize(("code", "container"), [(1, 1), (2, 2), (125, 125), (126, 1), (142, 1), (200, 1), (255, 1)])
def test_the_report_has_the_exit_code_that_the_program_gave(job: Job, code: int, container: int) -> None:
    node = job.start(0, 1, job.program(f"import sys; sys.exit({code})"), processes=1)
    assert node.end() == container, node.output
    assert node.report["exitCode"] == container
    assert node.report["failures"][0]["exitCode"] == code


def test_a_module_that_the_program_lacks_is_named_by_its_exception(job: Job) -> None:
    node = job.start(0, 1, job.program("import gone_with_the_wind"), processes=1)
    assert node.end() == 1, node.output
    (failure,) = node.report["failures"]
    assert failure["errorType"] == "ModuleNotFoundError"
    assert failure["message"] == "ModuleNotFoundError: No module named 'gone_with_the_wind'"


@pytest.mark.parametrize(
    ("kind", "program"), [("script", "gone.py"), ("module", "gone.train"), ("module", "package.gone")]
)
def test_a_program_that_is_not_there_is_named(job: Job, kind: str, program: str) -> None:
    (job.folder / "package").mkdir()
    (job.folder / "package" / "__init__.py").touch()
    node = job.start(0, 1, program, kind=kind, processes=1)
    assert node.end() == 1
    (failure,) = node.report["failures"]
    assert "gone" in failure["message"]
    assert failure["permanent"] is True


# A node that is not there


def test_nodes_that_do_not_come_are_named_when_the_rendezvous_times_out(job: Job) -> None:
    node = job.start(0, 2, job.program(""), timeout=2)
    assert node.end() == 1
    (failure,) = node.report["failures"]
    assert failure["message"].startswith("RendezvousTimeoutError: not all nodes joined in time.")
    assert "kubectl -n ml get pods -l ddpjob.dev/job=digits" in failure["message"]


def test_a_node_0_that_does_not_come_is_named(job: Job) -> None:
    node = job.start(1, 2, job.program(""), timeout=3)
    assert node.end() == 1
    assert "node 0 did not come up within 3 s" in node.report["failures"][0]["message"]
    assert "permanent" not in node.report["failures"][0]
    assert "ddpjob: waiting for node 0 for " in node.output


def test_variables_that_torchrun_refuses_are_an_error_with_a_report(job: Job) -> None:
    node = job.start(0, 1, job.program(""), PET_MAX_RESTARTS="many")
    assert node.end() == 1
    assert "PET_*" in node.report["failures"][0]["message"]
    assert node.report["failures"][0]["permanent"] is True
