"""The parts of the launcher that need no torch: the report, the wait for node 0, the guard, and a worker's program."""

import ast
import errno
import http.client
import importlib.util
import io
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from http import HTTPStatus
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ddpjob_launcher as package
from ddpjob_core.wire.report import parse_report
from tests.ports import free_port

LAUNCHER = Path(package.__file__).parent / "launcher.py"


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("launcher_under_test", LAUNCHER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


launcher = _load()


# The file


def test_the_operator_gets_the_files_as_they_are() -> None:
    assert package.sources() == {
        path.name: path.read_text(encoding="utf-8")
        for path in LAUNCHER.parent.glob("*.py")
        if path.name != "__init__.py"
    }


@pytest.mark.parametrize("file", package.sources())
def test_python_3_8_can_read_it(file: str) -> None:
    ast.parse(package.sources()[file], feature_version=(3, 8))


@pytest.mark.parametrize("file", package.sources())
def test_it_needs_the_standard_library_and_torch_alone(file: str) -> None:
    modules = set()
    tree = ast.parse(package.sources()[file])
    checked = [
        node.body for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    for_types_alone = {id(node) for body in checked for statement in body for node in ast.walk(statement)}
    for node in ast.walk(tree):
        if id(node) in for_types_alone:
            continue
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(str(node.module).partition(".")[0])
    own = {name.partition(".")[0] for name in package.sources()}
    assert modules <= {*sys.stdlib_module_names, "torch", *own}


# The report

texts = st.one_of(st.text(), st.text(min_size=900), st.text(alphabet='\x00\n"\\é語\U0001f525\ud800', max_size=5000))
failures = st.fixed_dictionaries(
    {
        "rank": st.integers(0, 10**6),
        "localRank": st.integers(0, 1000),
        "exitCode": st.integers(1, 255),
        "time": st.floats(0, 4e9),
        "message": texts,
    },
    optional={"traceback": texts},
)
progress = st.none() | st.dictionaries(st.text(max_size=30), st.integers() | st.floats() | st.text(max_size=300))


@given(st.integers(0, 255), st.lists(failures, max_size=12), texts, progress)
def test_a_report_never_exceeds_its_size_and_can_always_be_read(
    code: int, ends: list[dict[str, Any]], message: str, reached: dict[str, Any] | None
) -> None:
    report = launcher.encode_report(code, ends, message, reached, restarts=3, stopped=True)
    assert len(report) <= 2048
    assert b"\n" not in report
    parsed = parse_report(report.decode("utf-8"))
    assert parsed is not None
    assert json.loads(report)["exitCode"] == code
    assert (parsed.process_restarts, parsed.stopped) == (3, True)
    if ends:
        first = parsed.failures[0]
        assert (first.rank, first.local_rank, first.exit_code) == (
            ends[0]["rank"],
            ends[0]["localRank"],
            ends[0]["exitCode"],
        )


def test_a_long_traceback_keeps_its_end_and_stands_after_code_and_message() -> None:
    traceback = "Traceback\n" + "é" * 5000 + "\nValueError: the end"
    report = launcher.encode_report(
        1, [{"rank": 3, "exitCode": 7, "message": "ValueError: bad", "traceback": traceback}]
    )
    assert 2040 <= len(report) <= 2048
    text = report.decode("utf-8")
    assert text.index('"exitCode"') < text.index('"message"') < text.index('"traceback"')
    assert json.loads(report)["failures"][0]["traceback"].endswith("é\nValueError: the end")


def test_many_failures_leave_room_for_the_first_ones_message() -> None:
    ends = [{"rank": rank, "exitCode": 1, "message": f"rank {rank} " + "x" * 1000} for rank in range(64)]
    first, second, *_ = json.loads(launcher.encode_report(1, ends, "", {"step": 3}))["failures"]
    assert len(first["message"]) > 500
    assert second["message"].startswith("rank 1 x")


@pytest.mark.parametrize(("code", "expected"), [(1, 1), (7, 7), (125, 125), (126, 1), (255, 1), (-9, 137), (-64, 192)])
def test_the_containers_exit_code_is_the_workers_where_a_shell_has_no_other_meaning(code: int, expected: int) -> None:
    assert launcher.container_code(code) == expected


def test_a_failed_rendezvous_says_what_to_look_at_and_names_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDPJOB_NAME", "digits")
    monkeypatch.setenv("DDPJOB_NAMESPACE", "ml")
    late = launcher.own_failure(type("RendezvousTimeoutError", (Exception,), {})())
    assert "kubectl -n ml get pods -l ddpjob.dev/job=digits" in late["message"]
    monkeypatch.setenv("DDPJOB_LOCAL", "1")
    here = launcher.own_failure(type("RendezvousTimeoutError", (Exception,), {})())
    assert here["message"] == "RendezvousTimeoutError: not all nodes met in time. Look at what they write"
    lost = type("RendezvousConnectionError", (Exception,), {})("store failed")
    lost.__cause__ = RuntimeError("Broken pipe\nframe #0")
    assert (
        launcher.own_failure(lost)["message"] == "RendezvousConnectionError: store failed (RuntimeError: Broken pipe)"
    )
    assert "traceback" not in launcher.own_failure(lost)
    assert "traceback" in launcher.own_failure(KeyError("x"))


# The wait for node 0


class Network:
    """A clock that only sleeping moves, and a node 0 that appears step by step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, resolves_at: float, answers_at: float) -> None:
        self.now, self.pauses, self.lookups = 0.0, list[float](), list[float]()
        self._resolves_at, self._answers_at = resolves_at, answers_at
        monkeypatch.setattr(launcher.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(launcher.time, "sleep", self._sleep)
        monkeypatch.setattr(launcher.socket, "getaddrinfo", self._resolve)
        monkeypatch.setattr(launcher.socket, "create_connection", self._connect)

    def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def _resolve(self, *_: object, **__: object) -> None:
        self.lookups.append(self.now)
        if self.now < self._resolves_at:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    def _connect(self, *_: object, **__: object) -> socket.socket:
        if self.now < self._answers_at:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        return socket.socket()


def test_a_short_wait_for_node_0_is_silent(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    network = Network(monkeypatch, 0.5, 1.0)
    launcher.await_rank_zero("a-0.svc", 29500, 600, connect=True)
    assert network.now < 2
    assert network.pauses[:3] == [0.1, 0.2, 0.4]
    assert not capsys.readouterr().err


def test_a_long_wait_says_so_after_2_s_then_every_10(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    network = Network(monkeypatch, 15, 25)
    launcher.await_rank_zero("a-0.svc", 29500, 600, connect=True)
    assert 25 <= network.now < 26.1
    assert max(network.pauses) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert "a-0.svc does not resolve yet" in lines[0]
    assert "a-0.svc:29500 does not answer yet (Connection refused)" in lines[2]


def test_the_host_of_the_store_waits_for_its_name_only(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(monkeypatch, 3, 10**9)
    launcher.await_rank_zero("a-0.svc", 29500, 600, connect=False)
    assert network.now < 4


def test_giving_up_says_what_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(monkeypatch, 10**9, 10**9)
    monkeypatch.setenv("DDPJOB_NAME", "digits")
    with pytest.raises(launcher.LaunchError, match=r"within 30 s: .*job=digits,ddpjob.dev/ordinal=0.*DNS"):
        launcher.await_rank_zero("a-0.svc", 29500, 30, connect=True)
    assert network.now == pytest.approx(30)


def asked(port: int, path: str = "/progress") -> tuple[int, bytes]:
    """The status and body that a client gets, who closes the connection when it has the answer, as the operator."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    client.request("GET", path)
    response = client.getresponse()
    answer = response.status, response.read()
    client.close()
    return answer


def test_a_long_wait_is_told_on_progress_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[float, str, str]] = []
    network = Network(monkeypatch, 9, 20)

    class Page(launcher.WaitPage):
        def tell(self, reason: str, message: str) -> None:
            told.append((network.now, reason, message))

    launcher.await_rank_zero("a-0.svc", 29500, 600, connect=True, page=Page(1))
    assert told[0][0] >= launcher.TELL_AFTER
    assert [reason for _, reason, _ in told] == ["NameNotResolved"] * 4 + ["Node0NotReached"] * (len(told) - 4)
    assert told[-1][2] == "a-0.svc:29500 does not answer yet (Connection refused)"


def test_the_page_of_a_wait_answers_until_it_is_closed_and_leaves_its_port_to_the_program() -> None:
    port = free_port()
    page = launcher.WaitPage(port)
    page.tell("NameNotResolved", "a-0 does not exist yet")
    page.tell("Node0NotReached", "a-0:29500 does not answer yet")
    status, body = asked(port)
    assert status == HTTPStatus.OK
    assert json.loads(body) == {"waiting": {"reason": "Node0NotReached", "message": "a-0:29500 does not answer yet"}}
    assert asked(port, "/metrics") == (HTTPStatus.NOT_FOUND, b"")
    page.close()
    # As a program would that knows nothing of SO_REUSEADDR.
    with socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET) as other:
        other.bind(("", port))


def test_a_client_that_says_nothing_does_not_keep_the_page_from_closing() -> None:
    port = free_port()
    page = launcher.WaitPage(port)
    page.tell("NameNotResolved", "")
    with socket.create_connection(("127.0.0.1", port)):
        page.close()
    with pytest.raises(ConnectionRefusedError):
        asked(port)


def test_a_page_whose_port_is_taken_hinders_nobody() -> None:
    with socket.create_server(("", 0)) as taken:
        page = launcher.WaitPage(taken.getsockname()[1])
        page.tell("NameNotResolved", "")
        page.close()
    without_port = launcher.WaitPage(0)
    without_port.tell("NameNotResolved", "")
    without_port.close()


# A worker's program runs as the plain interpreter would run it

PROBE = """
import multiprocessing, pickle, sys, __main__
try:
    import neighbour
except ImportError:
    neighbour = None

class Sample:
    def __eq__(self, other): return type(other) is Sample

def where(queue): queue.put(__name__)

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=where, args=(queue,))
    if __file__.endswith("__main__.py"):
        # multiprocessing itself does not find such a main again.
        queue.put(None)
    else:
        child.start()
    print([
        sys.argv, sys.path, sys.orig_argv, sys.flags.safe_path, __name__, __file__, __package__,
        __spec__ and (__spec__.name, __spec__.origin),
        type(__loader__).__name__, sorted(vars(__main__)), __builtins__.__name__, __annotations__,
        __main__ is sys.modules["__main__"], pickle.loads(pickle.dumps(Sample())) == Sample(),
        queue.get(timeout=60), neighbour and neighbour.mine, sys.stdout.line_buffering,
        sys.stdout.write_through,
    ])
    child.pid and child.join()
"""

ENDINGS = {
    "exception": "def f():\n    raise ValueError('bad')\nf()",
    "chained": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('x') from e",
    "syntax": "def f(:\n    pass",
    "exit code": "import sys; sys.exit(7)",
    "exit text": "import sys; sys.exit('no data')",
    "exit none": "import sys; sys.exit()",
    "interrupt": "raise KeyboardInterrupt",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "own hook": "import sys; sys.excepthook = lambda *e: print('mine', e[0]); 1 / 0",
    "atexit": "import atexit, threading; atexit.register(print, 1); threading.Timer(0.1, print, [2]).start()",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").touch()
    (tmp_path / "neighbour.py").write_text("mine = True")
    (tmp_path / "pkg" / "neighbour.py").write_text("mine = False")
    return tmp_path


def _run(arguments: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-u", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )


def _worker(kind: str, program: str, *arguments: str) -> list[str]:
    return [str(LAUNCHER), "--ddpjob-worker", "yes", kind, program, *arguments]


@pytest.mark.parametrize("safe_path", ["", "1"])
@pytest.mark.parametrize(
    ("kind", "program", "file"),
    [
        ("script", "train.py", "train.py"),
        ("script", "./train.py", "train.py"),
        ("script", "pkg/../pkg/train.py", "pkg/train.py"),
        ("script", "link.py", "pkg/train.py"),
        ("script", "app", "app/__main__.py"),
        ("module", "pkg.train", "pkg/train.py"),
        ("module", "pkg", "pkg/__main__.py"),
    ],
)
def test_a_program_sees_what_it_would_see_without_the_launcher(
    folder: Path, kind: str, program: str, file: str, safe_path: str
) -> None:
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text(PROBE)
    (folder / "link.py").symlink_to(folder / "pkg" / "train.py")
    environment = {"PYTHONSAFEPATH": safe_path, "PYTHONPATH": str(folder) if safe_path else ""}
    plain = _run([*(["-m"] if kind == "module" else []), program, "--a", "b c"], folder, **environment)
    ours = _run(_worker(kind, program, "--a", "b c"), folder, **environment)
    assert plain.returncode == 0, plain.stderr
    assert (ours.stdout, ours.stderr, ours.returncode) == (plain.stdout, plain.stderr, plain.returncode)


@pytest.mark.parametrize("kind", ["script", "module"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_program_ends_as_it_would_end_without_the_launcher(folder: Path, ending: str, kind: str) -> None:
    (folder / "train.py").write_text(ENDINGS[ending])
    plain = _run(["train.py"] if kind == "script" else ["-m", "train"], folder)
    ours = _run(_worker(kind, "train.py" if kind == "script" else "train"), folder, TORCHELASTIC_ERROR_FILE="")
    assert (ours.stdout, ours.stderr, ours.returncode) == (plain.stdout, plain.stderr, plain.returncode)


@pytest.mark.parametrize(
    ("ending", "message"),
    [
        ("exception", "ValueError: bad"),
        ("chained", "KeyError: 'x'"),
        ("syntax", "SyntaxError: "),
        ("exit code", "SystemExit: 7"),
        ("exit text", "SystemExit: no data"),
        ("interrupt", "KeyboardInterrupt: "),
    ],
)
def test_what_ends_a_program_is_recorded_in_torchs_form(folder: Path, ending: str, message: str) -> None:
    (folder / "train.py").write_text(ENDINGS[ending])
    _run(_worker("script", "train.py"), folder, TORCHELASTIC_ERROR_FILE=str(folder / "error.json"))
    recorded = json.loads((folder / "error.json").read_text())["message"]
    assert recorded["message"].startswith(message)
    assert int(recorded["extraInfo"]["timestamp"]) == int(recorded["extraInfo"]["time"])
    assert "launcher.py" not in recorded["extraInfo"]["py_callstack"]


@pytest.mark.parametrize("ending", ["exit none", "atexit", "killed"])
def test_nothing_is_recorded_where_there_is_no_exception(folder: Path, ending: str) -> None:
    (folder / "train.py").write_text(ENDINGS[ending])
    _run(_worker("script", "train.py"), folder, TORCHELASTIC_ERROR_FILE=str(folder / "error.json"))
    assert not (folder / "error.json").exists()


def test_what_the_program_recorded_itself_stays(folder: Path) -> None:
    (folder / "error.json").write_text("mine")
    (folder / "train.py").write_text(ENDINGS["exception"])
    _run(_worker("script", "train.py"), folder, TORCHELASTIC_ERROR_FILE=str(folder / "error.json"))
    assert (folder / "error.json").read_text() == "mine"


def test_a_crash_in_native_code_leaves_the_python_stack(folder: Path) -> None:
    (folder / "train.py").write_text("import ctypes\ndef deep():\n    ctypes.string_at(0)\ndeep()")
    ended = _run(_worker("script", "train.py"), folder, TORCHELASTIC_ERROR_FILE=str(folder / "error.json"))
    assert ended.returncode == -signal.SIGSEGV
    stack = (folder / "fault.txt").read_text()
    assert stack.startswith("Fatal Python error: Segmentation fault")
    assert 'train.py", line 3 in deep' in stack


# Before torch


def _launch(folder: Path, **environment: str) -> tuple[int, dict[str, Any], str]:
    log = folder / "termination-log"
    log.touch()
    ended = _run([str(LAUNCHER)], folder, DDPJOB_TERMINATION_LOG=str(log), **environment)
    return ended.returncode, json.loads(log.read_text()), ended.stderr


@pytest.mark.parametrize(
    ("kind", "program", "message"),
    [
        ("script", "gone.py", "script gone.py not found in {folder}: check spec.trainer.script"),
        ("module", "gone.train", "no module named gone.train: check spec.trainer.module"),
        ("script", "pkg/__init__.py", "this image has no torch for {python}: check spec.trainer.image"),
    ],
)
def test_what_is_missing_is_named_before_anything_is_waited_for(
    folder: Path, kind: str, program: str, message: str
) -> None:
    (folder / "torch").mkdir()
    code, report, log = _launch(folder, DDPJOB_PROGRAM=program, DDPJOB_PROGRAM_KIND=kind)
    assert code == report["exitCode"] == 1
    expected = message.format(folder=folder, python=sys.executable)
    assert report["failures"][0]["message"].startswith(expected)
    assert "rank" not in report["failures"][0]
    assert expected in log


def test_without_a_cluster_a_missing_torch_is_to_be_installed(folder: Path) -> None:
    (folder / "torch").mkdir()
    environment = {"DDPJOB_PROGRAM": "pkg/__init__.py", "DDPJOB_PROGRAM_KIND": "script", "DDPJOB_LOCAL": "1"}
    _, report, _ = _launch(folder, **environment)
    message = f"there is no torch here: {sys.executable} -m pip install torch"
    assert report["failures"][0]["message"].startswith(message)


def test_a_termination_log_that_cannot_be_written_does_not_hide_the_end(folder: Path) -> None:
    ended = _run([str(LAUNCHER)], folder, DDPJOB_TERMINATION_LOG="/nonexistent/log", DDPJOB_PROGRAM="gone.py")
    assert ended.returncode == 1
    assert "script gone.py not found" in ended.stderr


def _files(monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> None:
    def read(path: str, **_: object) -> io.StringIO:
        if path not in files:
            raise FileNotFoundError(path)
        return io.StringIO(files[path])

    monkeypatch.setitem(vars(launcher), "open", read)


V1, V2 = "/sys/fs/cgroup/cpu/cpu.cfs_", "/sys/fs/cgroup/cpu.max"


@pytest.mark.parametrize(
    ("files", "processes", "threads"),
    [
        ({V2: "800000 100000\n"}, 2, 4),
        ({V2: "50000 100000\n"}, 1, 1),
        ({V2: "max 100000\n"}, 1, None),
        ({V2: "max 100000\n"}, 4, 1),
        ({V1 + "quota_us": "600000\n", V1 + "period_us": "100000\n"}, 3, 2),
        ({V1 + "quota_us": "-1\n", V1 + "period_us": "100000\n"}, 1, None),
        ({}, 1, None),
    ],
)
def test_threads_follow_the_cpu_limit(
    monkeypatch: pytest.MonkeyPatch, files: dict[str, str], processes: int, threads: int | None
) -> None:
    _files(monkeypatch, files)
    assert launcher.omp_threads(processes) == threads


MEMORY_V1 = "/sys/fs/cgroup/memory/memory."
MEMORY_V2 = "/sys/fs/cgroup/memory."


@pytest.mark.parametrize(
    ("files", "kills", "limit"),
    [
        ({MEMORY_V2 + "events": "low 0\noom 2\noom_kill 2\n", MEMORY_V2 + "max": "536870912\n"}, 2, " (limit 512 MiB)"),
        ({MEMORY_V2 + "events": "low 0\noom 0\noom_kill 0\n", MEMORY_V2 + "max": "max\n"}, 0, ""),
        (
            {
                MEMORY_V1 + "oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
                MEMORY_V1 + "limit_in_bytes": "1073741824\n",
            },
            1,
            " (limit 1024 MiB)",
        ),
        (
            {MEMORY_V1 + "oom_control": "oom_kill_disable 0\n", MEMORY_V1 + "limit_in_bytes": "9223372036854771712"},
            0,
            "",
        ),
        ({MEMORY_V2 + "events": "oom_kill"}, 0, ""),
        ({}, 0, ""),
    ],
)
def test_the_kernel_tells_whom_it_killed_for_memory(
    monkeypatch: pytest.MonkeyPatch, files: dict[str, str], kills: int, limit: str
) -> None:
    _files(monkeypatch, files)
    assert (launcher.oom_kills(), launcher.memory_limit()) == (kills, limit)


LOADER = "RuntimeError: DataLoader worker (pid 12) is killed by signal: Killed. "
OUT_OF_MEMORY = "killed by the kernel: out of memory (limit 512 MiB)"


@pytest.mark.parametrize(
    ("exit_code", "said", "grown", "message"),
    [
        (-9, "", True, OUT_OF_MEMORY),
        (-9, "", False, "killed by SIGKILL"),
        (-11, "", True, "killed by SIGSEGV"),
        (1, LOADER, True, f"{LOADER.rstrip('. ')} ({OUT_OF_MEMORY})"),
        (1, LOADER, False, LOADER),
        (1, "ValueError: bad", True, "ValueError: bad"),
    ],
)
def test_a_worker_that_ran_out_of_memory_is_told_from_one_that_was_killed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, exit_code: int, said: str, message: str, *, grown: bool
) -> None:
    _files(monkeypatch, {MEMORY_V2 + "max": str(512 << 20)})
    error_file = folder / "error.json"
    if said:
        error_file.touch()
    recorded = {"message": {"message": said, "extraInfo": {"time": 5.0}}} if said else {}
    end = SimpleNamespace(
        local_rank=1, exitcode=exit_code, error_file=str(error_file), error_file_data=recorded, timestamp=5
    )
    entry = launcher.worker_failure(3, end, str(error_file), out_of_memory=grown)
    assert entry["message"] == message
    assert entry.get("oom", False) == ("out of memory" in message)


@pytest.mark.parametrize(
    ("resolver", "name"),
    [
        ("search ml.svc.cluster.local svc.cluster.local lan\noptions ndots:5\n", "a-0.a.ml.svc.cluster.local."),
        ("nameserver 10.96.0.10\nsearch ml.svc.example.org. lan\n", "a-0.a.ml.svc.example.org."),
        ("search lan\n", "a-0.a"),
        (None, "a-0.a"),
    ],
)
def test_names_become_absolute_where_the_cluster_s_domain_is_known(
    monkeypatch: pytest.MonkeyPatch, resolver: str | None, name: str
) -> None:
    monkeypatch.setenv("DDPJOB_NAMESPACE", "ml")
    _files(monkeypatch, {} if resolver is None else {"/etc/resolv.conf": resolver})
    assert launcher.absolute_name("a-0.a") == name
    assert launcher.absolute_name("") == ""


# The guard

DRIVER = """
import importlib.util, os, signal, sys, time
spec = importlib.util.spec_from_file_location("launcher", {launcher!r})
launcher = importlib.util.module_from_spec(spec)
spec.loader.exec_module(launcher)

class Agent:
    def __init__(self, folder): self.folder = folder
    def run(self):
{body}

launcher.Agent = Agent
sys.exit(launcher.main())
"""


def _guard(folder: Path, body: str, **environment: str) -> "subprocess.Popen[str]":
    driver = folder / "driver.py"
    driver.write_text(DRIVER.format(launcher=str(LAUNCHER), body=textwrap.indent(textwrap.dedent(body), " " * 8)))
    (folder / "log").touch()
    return subprocess.Popen(
        [sys.executable, str(driver)],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "DDPJOB_TERMINATION_LOG": str(folder / "log"), "TMPDIR": str(folder), **environment},
    )


def test_the_guard_ends_as_the_agent_does_and_leaves_nothing_behind(folder: Path) -> None:
    assert _guard(folder, "return 7").wait(30) == 7
    assert not list(folder.glob("ddpjob-*"))


def test_a_killed_agent_is_reported_by_the_guard(folder: Path) -> None:
    assert _guard(folder, "os.kill(os.getpid(), signal.SIGKILL)").wait(30) == 137
    report = json.loads((folder / "log").read_text())
    assert report["exitCode"] == 137
    assert report["failures"][0]["signal"] == "SIGKILL"


def test_what_the_agent_has_reported_is_not_overwritten(folder: Path) -> None:
    body = "launcher.write_report(b'{}')\nos.kill(os.getpid(), signal.SIGKILL)"
    assert _guard(folder, body).wait(30) == 137
    assert (folder / "log").read_text() == "{}"


def test_an_agent_that_does_not_end_in_time_is_killed_and_reported_as_stopped(folder: Path) -> None:
    body = """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("ready", flush=True)
    while True: time.sleep(60)
    """
    guard = _guard(folder, body, DDPJOB_GRACE_PERIOD_SECONDS="2")
    assert guard.stdout is not None
    assert guard.stdout.readline() == "ready\n"
    guard.send_signal(signal.SIGTERM)
    assert guard.wait(30) == 143
    assert json.loads((folder / "log").read_text()) == {
        "exitCode": 143,
        "stopped": True,
        "message": "stopped by SIGTERM",
    }


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_the_guard_forwards_a_signal(folder: Path, number: signal.Signals) -> None:
    body = f"""
    signal.signal({int(number)}, lambda *_: os._exit(42))
    print("ready", flush=True)
    while True: time.sleep(0.01)  # short: a signal just before a long one would be handled after it only
    """
    guard = _guard(folder, body)
    assert guard.stdout is not None
    assert guard.stdout.readline() == "ready\n"
    guard.send_signal(number)
    assert guard.wait(30) == 42


def test_the_guard_reaps_orphans_and_leaves_the_agents_own_children_to_it(folder: Path) -> None:
    body = """
    guard, (reader, writer) = os.getppid(), os.pipe()
    child = os.fork()
    if child == 0:
        orphan = os.fork()
        if orphan == 0:
            while os.getppid() != guard: time.sleep(0.01)
            os.write(writer, b"%d" % os.getpid())
            os._exit(0)
        os._exit(5)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 5:
        return 1
    orphan = int(os.read(reader, 20))
    while os.path.exists(f"/proc/{orphan}"): time.sleep(0.01)
    return 0
    """
    assert _guard(folder, body).wait(30) == 0


# Addresses


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("digits-a0-0.digits.ml.svc.cluster.local.", "digits-a0-0.digits.ml.svc.cluster.local.:29500"),
        ("127.0.0.1", "127.0.0.1:29500"),
        ("fd00::1", "[fd00::1]:29500"),
    ],
)
def test_an_ipv6_address_stands_in_brackets_before_its_port(host: str, text: str) -> None:
    assert launcher.endpoint(host, "29500") == text


# The host network

HEAD = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"


def ipv4(name: str, *, metric: int = 0, flags: str = "0003", to: str = "0" * 8, mask: str = "0" * 8) -> str:
    return f"{name}\t{to}\t010200C0\t{flags}\t0\t0\t{metric}\t{mask}\t0\t0\t0\n"


def ipv6(
    name: str, *, metric: str = "00000400", flags: str = "00000003", to: str = "0" * 32, length: str = "00"
) -> str:
    return f"{to} {length} {'0' * 32} 00 {'f' * 32} {metric} 00000001 00000000 {flags} {name}\n"


REJECTS = ipv6("lo", metric="ffffffff", flags="00200200")


@pytest.mark.parametrize(
    ("four", "six", "interface"),
    [
        ("", "", None),
        ("nonsense\n", "00 00\n", None),
        (HEAD, REJECTS, None),
        (HEAD + ipv4("eth0", to="0002A8C0", mask="00FFFFFF"), REJECTS, None),
        (HEAD + ipv4("eth0", mask="00000080"), REJECTS, None),
        (HEAD + ipv4("docker0", to="000011AC", mask="0000FFFF") + ipv4("eth0"), REJECTS, "eth0"),
        (HEAD + ipv4("wlan0", metric=600) + ipv4("ib0", metric=100), "", "ib0"),
        (HEAD + ipv4("down0", flags="0002") + ipv4("eth1", metric=9), "", "eth1"),
        (HEAD + ipv4("no0", flags="0201") + ipv4("eth1", metric=9), "", "eth1"),
        (HEAD, ipv6("eth0", to="fd" + "0" * 30, length="40") + ipv6("eth1") + REJECTS, "eth1"),
        (HEAD, ipv6("eth1", metric="00000401") + ipv6("eth2", metric="00000064"), "eth2"),
        (HEAD + ipv4("eth0", metric=2000), ipv6("eth1"), "eth0"),
    ],
)
def test_the_interface_of_the_default_route_is_found(four: str, six: str, interface: str | None) -> None:
    assert launcher.default_interface(four, six) == interface


def test_gloo_is_told_this_machine_s_interface_on_the_host_network_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = launcher.default_interface(Path("/proc/net/route").read_text(), Path("/proc/net/ipv6_route").read_text())
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    launcher.name_the_interface()
    assert "GLOO_SOCKET_IFNAME" not in os.environ
    monkeypatch.setenv("DDPJOB_HOST_NETWORK", "1")
    monkeypatch.setattr(os, "environ", dict(os.environ))
    launcher.name_the_interface()
    assert os.environ.get("GLOO_SOCKET_IFNAME") == expected
    os.environ["GLOO_SOCKET_IFNAME"] = "mine"
    launcher.name_the_interface()
    assert os.environ["GLOO_SOCKET_IFNAME"] == "mine"
