"""The launcher: what runs first in a training pod, `python3 launcher.py [arguments of the program]`.

It is delivered with the pod, so that any image with torch works: one file, the standard library only, Python >= 3.8.
What to run is told by DDPJOB_* and torchrun's own PET_* variables. Three kinds of process run it:

    guard    the container's first process: forwards signals, reaps orphans, outlives a launcher that gets killed
    agent    its child: waits for rank 0, runs torchrun or one worker, writes the report (see ddpjob_core.wire.report)
    worker   one per rank: runs the program as `python program` would and records its exception

The launcher mpirun has files of its own beside this one: mpirun_launcher.py and remote_shell.py.
"""
# ruff: noqa: PLC0415 -- torch is the image's, and what it costs to import is the agent's alone
# ruff: noqa: PTH100, PTH109, PTH110, PTH112, PTH113, PTH118, PTH120, PTH123, PTH202 -- plain paths go to torch
# ruff: noqa: ANN401 -- torch's objects, of whatever version the image has

from __future__ import annotations

import builtins
import contextlib
import ctypes
import faulthandler
import importlib.machinery
import importlib.util
import json
import os
import random
import runpy
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from types import ModuleType, SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

REPORT_BYTES = 2048
# What a worker ends with once the ranks have agreed to stop and have saved.
AGREED_STOP = 128 + signal.SIGTERM
# Seconds that the other workers of a node have before a restart in place: they cannot go on, and all nodes wait.
RESTART_PATIENCE = 1.0
DNS_PORT = 53
# Seconds that a node waits for node 0 before it says so on /progress.
TELL_AFTER = 5.0
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
WORKER = "--ddpjob-worker"
_LEFT = "ddpjob/left"


class LaunchError(Exception):
    """Something to be put right by the user; the message says what."""


class CannotStart(LaunchError):  # noqa: N818 -- what it is, as the job's status has it
    """Something that the next try would meet again: what the image or the spec lacks does not come by itself."""


# The worker


def run_program(libuv: str, kind: str, program: str, arguments: list[str]) -> None:
    """Run the program as `python -u program` (or `-m program`) does and record what ends it in torch's error file."""
    pid, main = os.getpid(), ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = main
    sys.argv = [program, *arguments]
    sys.orig_argv = [sys.executable, "-u", *(["-m"] if kind == "module" else []), *sys.argv]
    sys.excepthook = _without_our_frames
    _record_faults()
    if libuv != "yes":
        sys.meta_path.insert(0, _LibuvOff(ask=libuv == "ask"))
    try:
        _execute(kind, program, main.__dict__)
    except BaseException as error:
        if os.getpid() == pid:
            _record(error)
        raise


def _execute(kind: str, program: str, namespace: dict[str, object]) -> None:
    package = kind == "script" and (os.path.isdir(program) or program.endswith((".zip", ".pyz")))
    folder = os.getcwd() if kind == "module" else os.path.dirname(os.path.realpath(program))
    safe_path = getattr(sys.flags, "safe_path", False)
    if not safe_path:
        del sys.path[0]
    if package or not safe_path:
        sys.path.insert(0, os.path.abspath(program) if package else folder)
    if kind == "module" or package:
        # What the interpreter itself calls for `-m`.
        runpy._run_module_as_main("__main__" if package else program, alter_argv=not package)  # type: ignore[attr-defined] # noqa: SLF001
        return
    path = os.path.join(os.getcwd(), program)
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    namespace.update(__file__=path, __loader__=loader, __cached__=None)
    exec(compile(loader.get_data(path), path, "exec", dont_inherit=True), namespace)  # noqa: S102 -- the pod's purpose


def _trimmed(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename == run_program.__code__.co_filename:
        trace = trace.tb_next
    return trace


def _without_our_frames(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    trace = _trimmed(trace)
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


def _record_faults() -> None:
    # A crash in native code leaves no exception: the Python stack at that moment goes beside torch's error file.
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path and not faulthandler.is_enabled():
        faulthandler.enable(os.open(fault_file(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), all_threads=False)


def fault_file(error_file: str) -> str:
    """Where the Python stack of a worker that crashed in native code is kept, given the worker's error file."""
    return os.path.join(os.path.dirname(error_file), "fault.txt")


def _record(error: BaseException) -> None:
    """Write the error in the form of torch's @record, unless the program has done so itself."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    success = isinstance(error, SystemExit) and not error.code
    if success or not path or os.path.exists(path):
        return
    try:
        message = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 -- a __str__ of the program's own
        message = type(error).__name__
    stack = "".join(traceback.format_exception(type(error), error, _trimmed(error.__traceback__)))
    extra = {"py_callstack": stack[-16384:], "timestamp": str(int(time.time())), "time": time.time()}
    with contextlib.suppress(OSError), open(path, "w") as file:
        json.dump({"message": {"message": message[:4096], "extraInfo": extra}}, file)


class _LibuvOff:
    """Turns libuv off in every store, as soon as torch.distributed is about to create the first."""

    def __init__(self, *, ask: bool) -> None:
        """With `ask` only where torch is built without it."""
        self._ask = ask

    def find_spec(self, name: str, *_: object) -> None:
        if name == "torch.distributed.distributed_c10d":
            sys.meta_path.remove(self)
            if not self._ask or not has_libuv():
                # The second is for the processes that the program spawns.
                libuv_off()
                os.environ["USE_LIBUV"] = "0"


def libuv_off() -> None:
    """Let TCPStore do without libuv: torch asks for it by default even where it is built without."""
    from torch._C._distributed_c10d import TCPStore

    create = TCPStore.__init__

    def init(store: object, *args: object, **kwargs: object) -> None:
        kwargs["use_libuv"] = False
        create(store, *args, **kwargs)

    TCPStore.__init__ = init


def say(text: str) -> None:
    """One line of the pod's log."""
    print(f"ddpjob: {text}", file=sys.stderr, flush=True)  # noqa: T201


# The report


def encode_report(
    code: int,
    failures: list[dict[str, Any]],
    message: str = "",
    progress: dict[str, Any] | None = None,
    *,
    restarts: int = 0,
    stopped: bool = False,
) -> bytes:
    """The report as one line of JSON of at most REPORT_BYTES: what is dropped first is a traceback's beginning."""
    report: dict[str, Any] = {"exitCode": code}
    if stopped:
        report["stopped"] = True
    if restarts:
        report["processRestarts"] = restarts
    if message:
        report["message"] = clip(message, 512)
    if progress and len(_json(progress)) <= REPORT_BYTES // 3:
        report["progress"] = progress
    kept: list[dict[str, Any]] = []
    for failure in failures:
        entry = {key: value for key, value in failure.items() if key != "traceback"}
        entry["message"] = clip(str(entry.get("message", "")), 96 if kept else 512)
        if len(_json({**report, "failures": [*kept, entry]})) > REPORT_BYTES:
            break
        kept.append(entry)
    if kept:
        report["failures"] = kept
        room = REPORT_BYTES - len(_json(report)) - len(',"traceback":""')
        text = str(failures[0].get("traceback") or "")
        if text and room > 0:
            kept[0]["traceback"] = clip(text, room, end=True)
    return _json(report)


def clip(text: str, limit: int, *, end: bool = False) -> str:
    """The beginning, or the end, of the text that takes at most `limit` bytes in JSON."""
    if len(_json(text)) - 2 <= limit:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        part = "…" + text[-middle:] if end else text[:middle] + "…"
        low, high = (middle, high) if len(_json(part)) - 2 <= limit else (low, middle - 1)
    if not low:
        return ""
    return "…" + text[-low:] if end else text[:low] + "…"


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def write_report(report: bytes) -> None:
    """Make the report the container's termination message."""
    try:
        with open(_termination_log(), "wb") as file:
            file.write(report)
    except OSError as error:
        say(f"no termination message: {error}")


def _termination_log() -> str:
    return os.environ.get("DDPJOB_TERMINATION_LOG", "/dev/termination-log")


def signal_name(number: int) -> str:
    """SIGTERM for 15; real-time signals have no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def worker_failure(rank: int, failure: Any, error_file: str, *, out_of_memory: bool = False) -> dict[str, Any]:
    """One worker's end, from torch's ProcessFailure, for the report.

    With `out_of_memory` the kernel has killed processes of this container: a worker that was killed without a word, or
    that says its data loader was, is one of them.
    """
    entry: dict[str, Any] = {"rank": rank, "localRank": failure.local_rank}
    if failure.exitcode < 0:
        entry["signal"] = signal_name(-failure.exitcode)
        message = f"killed by {entry['signal']}"
    else:
        entry["exitCode"] = failure.exitcode
        message = f"exit code {failure.exitcode}"
    # Torch's own times are whole seconds.
    moment, stack = time.time(), ""
    recorded = failure.error_file_data.get("message") if os.path.isfile(failure.error_file) else None
    if isinstance(recorded, dict):
        extra = recorded.get("extraInfo") or {}
        message, stack = str(recorded.get("message") or message), str(extra.get("py_callstack") or "")
        moment = float(extra.get("time") or failure.timestamp)
        name = message.partition(":")[0]
        if name.isidentifier():
            entry["errorType"] = clip(name, 64)
    elif recorded:
        message = str(recorded)
    elif failure.exitcode < 0:
        with contextlib.suppress(OSError), open(fault_file(error_file), errors="replace") as file:
            stack = file.read(4096)
        message = stack.partition("\n")[0] or message
    if out_of_memory and (failure.exitcode == -signal.SIGKILL or "killed by signal: Killed" in message):
        entry["oom"] = True
        why = f"killed by the kernel: out of memory{memory_limit()}"
        message = why if failure.exitcode < 0 else f"{message.rstrip('. ')} ({why})"
    entry.update(time=moment, message=message, **({"traceback": stack} if stack else {}))
    return entry


def own_failure(error: BaseException) -> dict[str, Any]:
    """What kept the launcher from its work, for the report; a traceback only where the message does not say enough."""
    name, cause = type(error).__name__, error.__cause__
    entry: dict[str, Any] = {"exitCode": 1, "time": time.time(), "message": f"{name}: {error}"}
    if isinstance(error, LaunchError):
        entry["message"] = str(error)
        if isinstance(error, CannotStart):
            entry["permanent"] = True
    elif name == "RendezvousTimeoutError":
        look = "Look at what they write" if is_local() else f"Look at the job's pods: {pods_of_the_job()}"
        entry["message"] = f"{name}: not all nodes met in time. {look}"
    elif name == "RendezvousClosedError":
        entry["message"] = f"{name}: another node has finished already, so the workers cannot start again in place"
    elif not name.startswith(("Rendezvous", "Dist")):
        entry["traceback"] = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    elif cause:
        entry["message"] += f" ({type(cause).__name__}: {str(cause).partition(chr(10))[0]})"
    return entry


def killed_program(what: str, number: int, oom_kills_before: int) -> dict[str, Any]:
    """For the report: a program around the workers was killed by a signal, by the kernel for its memory or not."""
    name = signal_name(number)
    entry: dict[str, Any] = {"signal": name, "time": time.time(), "message": f"{what} itself was killed by {name}"}
    if number == signal.SIGKILL and oom_kills() > oom_kills_before:
        entry.update(oom=True, message=f"{what} was killed by the kernel: out of memory{memory_limit()}")
    return entry


def container_code(code: int) -> int:
    """The container's exit code for a worker's: its own from 1 to 125, 128 + n for signal n, else 1."""
    if code < 0:
        return 128 - code
    return code if code <= 125 else 1  # noqa: PLR2004 -- above, a shell has meanings of its own


def is_local() -> bool:
    """Whether this is `ddpjob run --local`, where there is no cluster to look at."""
    return "DDPJOB_LOCAL" in os.environ


def pods_of_the_job(selector: str = "") -> str:
    """The command that shows the job's pods."""
    name, namespace = os.environ.get("DDPJOB_NAME", ""), os.environ.get("DDPJOB_NAMESPACE", "default")
    return f"kubectl -n {namespace} get pods -l ddpjob.dev/job={name}{selector}"


# The environment


def oom_kills() -> int:
    """How many processes of this container the kernel has killed because there was no memory left for them."""
    words = _cgroup("memory.events", "memory/memory.oom_control").split()
    with contextlib.suppress(ValueError, IndexError):
        return int(words[words.index("oom_kill") + 1])
    return 0


def memory_limit() -> str:
    """The container's memory limit, in brackets; empty where it has none."""
    limit = _cgroup("memory.max", "memory/memory.limit_in_bytes").strip()
    # Version 1 writes a huge number for none.
    return f" (limit {int(limit) >> 20} MiB)" if limit.isdigit() and int(limit) < 1 << 60 else ""


def _cgroup(*names: str) -> str:
    for name in names:
        with contextlib.suppress(OSError), open(f"/sys/fs/cgroup/{name}") as file:
            return file.read()
    return ""


def omp_threads(processes: int) -> int | None:
    """Threads for each process: its share of the container's CPU limit; None leaves a lone one to torch."""
    for folder, names in (("", ("cpu.max",)), ("cpu/", ("cpu.cfs_quota_us", "cpu.cfs_period_us"))):
        numbers: list[str] = []
        with contextlib.suppress(OSError):
            for name in names:
                with open(f"/sys/fs/cgroup/{folder}{name}") as file:
                    numbers += file.read().split()
        if len(numbers) == 2 and numbers[0].isdigit():  # noqa: PLR2004 -- quota and period; "max" or -1 is no quota
            return max(1, int(numbers[0]) // int(numbers[1]) // processes)
    return 1 if processes > 1 else None


def default_interface(ipv4: str, ipv6: str) -> str | None:
    """The interface of the default route, that of IPv4 first; of several the one with the lowest metric.

    Args:
        ipv4: text of /proc/net/route.
        ipv6: text of /proc/net/ipv6_route.
    """
    found = []
    for line in ipv4.splitlines():
        words = line.split()
        # Interface, destination, gateway, flags, two counters, metric, mask; numbers but the metric are hexadecimal.
        if len(words) > 7 and words[1] == words[7] == "0" * 8:  # noqa: PLR2004
            found.append((4, int(words[6]), int(words[3], 16), words[0]))
    for line in ipv6.splitlines():
        words = line.split()
        # Destination, its prefix length, the same of the source, gateway, metric, two counters, flags, interface.
        if len(words) > 9 and words[0] == "0" * 32 and words[1] == "00":  # noqa: PLR2004
            found.append((6, int(words[5], 16), int(words[8], 16), words[9]))
    # Routes that are up (1) and do not reject (0x200): each table of IPv6 ends with one of the loopback that does.
    usable = [(family, metric, name) for family, metric, flags, name in found if flags & 0x201 == 1 and name != "lo"]
    return min(usable)[2] if usable else None


def name_the_interface() -> None:
    """On a node's network, tell gloo its interface: the host name is the node's, and often that of the loopback."""
    if "DDPJOB_HOST_NETWORK" in os.environ and not os.environ.get("GLOO_SOCKET_IFNAME"):
        tables = {}
        for name in ("route", "ipv6_route"):
            with contextlib.suppress(OSError), open(f"/proc/net/{name}") as file:
                tables[name] = file.read()
        interface = default_interface(tables.get("route", ""), tables.get("ipv6_route", ""))
        if interface:
            os.environ["GLOO_SOCKET_IFNAME"] = interface
            say(f"host network: gloo uses {interface}, as the default route does; GLOO_SOCKET_IFNAME would change it")


def check_program(kind: str, program: str) -> None:
    """Fail before the others are waited for, if the program is not there."""
    if kind == "script":
        if not os.path.exists(program):
            raise CannotStart(
                f"script {program} not found in {os.getcwd()}: "
                "check spec.trainer.script, workingDir, image and volumeMounts"
            )
        return
    sys.path.insert(0, os.getcwd())
    try:
        found = importlib.util.find_spec(program.partition(".")[0]) is not None
    except (ImportError, ValueError):
        found = True
    finally:
        del sys.path[0]
    if not found:
        raise CannotStart(f"no module named {program}: check spec.trainer.module, image and workingDir")


# Waiting for node 0


def absolute_name(name: str) -> str:
    """The name with the cluster's domain and a final dot, where the resolver's configuration tells the domain.

    Torch asks for IPv6 first and alone. Where there is none, a relative name is then tried in every search domain and
    at last outside of the cluster, by each process anew: seconds where that server is slow or cannot be reached.
    """
    with contextlib.suppress(OSError), open("/etc/resolv.conf") as file:
        for word in file.read().split():
            if word.startswith(f"{os.environ.get('DDPJOB_NAMESPACE')}.svc.") and name and ":" not in name:
                return f"{name}.{word.rstrip('.')}."
    return name


def endpoint(host: str, port: int) -> str:
    """Host and port as torch reads them: an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def name_exists(name: str) -> bool | None:
    """Whether the cluster's name server knows the absolute name; None where it does not say.

    A server remembers for up to 30 s, for everybody, that it was asked in vain for a name and a type of record. So this
    asks for types that nobody uses, each time for another: a server tells for any type whether the name exists.
    """
    number, kind = random.randrange(1 << 16), random.randrange(0xF000, 0xFFFF)  # noqa: S311
    with contextlib.suppress(OSError, ValueError, struct.error):
        labels = [label.encode("ascii") for label in name.rstrip(".").split(".")]
        question = b"".join(struct.pack("!B", len(label)) + label for label in labels) + struct.pack("!BHH", 0, kind, 1)
        query = struct.pack("!6H", number, 0x0100, 1, 0, 0, 0) + question
        for server in _name_servers():
            code = _ask(server, query)
            if code is not None:
                # NOERROR, whatever records there are, or NXDOMAIN; else it could not tell.
                return {0: True, 3: False}.get(code)
    return None


def _name_servers() -> list[str]:
    with open("/etc/resolv.conf") as file:
        lines = [line.split() for line in file]
    return [line[1] for line in lines if line[:1] == ["nameserver"] and len(line) > 1][:3]


def _ask(server: str, query: bytes) -> int | None:
    """The response code of the answer; None where there is none in a second."""
    with contextlib.suppress(OSError):
        found = socket.getaddrinfo(server, DNS_PORT, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)[0]
        with socket.socket(found[0], socket.SOCK_DGRAM) as asked:
            asked.settimeout(1)
            asked.connect(found[4])
            asked.send(query)
            answer = asked.recv(4096)
        # Same number and question, and marked as a response.
        if answer[:2] == query[:2] and answer[12:].lower().startswith(query[12:].lower()) and answer[2] & 0x80:
            return answer[3] & 0x0F
    return None


class WaitPage:
    """Answers on /progress, where local rank 0 will, why this node waits; the port is free again after `close`."""

    def __init__(self, port: int) -> None:
        """Make a page that is served from the first `tell` on, if there is a port and it can be bound."""
        self._port = port
        self._body = b"{}"
        self._listener: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def tell(self, reason: str, message: str) -> None:
        """Answer this from now on."""
        self._body = _json({"waiting": {"reason": reason, "message": message}})
        if self._port and self._listener is None:
            with contextlib.suppress(OSError, OverflowError):
                both = socket.has_dualstack_ipv6()
                family = socket.AF_INET6 if both else socket.AF_INET
                self._listener = socket.create_server(("", self._port), family=family, dualstack_ipv6=both)
                self._thread.start()

    def close(self) -> None:
        """Answer nobody any more."""
        if self._listener is not None:
            # Closing alone would leave the thread in accept, and the port bound.
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._thread.join()
            self._listener.close()

    def _serve(self) -> None:
        while self._listener is not None:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            with contextlib.suppress(OSError), client:
                client.settimeout(1)
                found = client.recv(4096).startswith(b"GET /progress ")
                body = self._body if found else b""
                head = f"HTTP/1.1 {'200 OK' if found else '404 Not Found'}\r\nContent-Length: {len(body)}\r\n"
                client.sendall(f"{head}Content-Type: application/json\r\nConnection: close\r\n\r\n".encode() + body)
                # The client closes first: whoever does keeps the port for a minute from a program without SO_REUSEADDR.
                client.recv(1)


def await_rank_zero(host: str, port: int, timeout: float, *, connect: bool, page: WaitPage | None = None) -> None:
    """Wait until node 0's name resolves and, with `connect`, its store answers."""
    await_node(0, host, port, timeout, connect=connect, page=page)


def await_node(
    ordinal: int, host: str, port: int, timeout: float, *, connect: bool, page: Any = None, begun: float | None = None
) -> None:
    """Wait until a node's name resolves and, with `connect`, its port answers.

    What keeps it is told to the `page`. The `timeout` in seconds counts from the moment `begun` of the monotonic clock.
    """
    begin, pause, say_at = time.monotonic() if begun is None else begun, 0.1, 2.0
    # Many who wait ask less often: the server and the store are one for all.
    longest = max(1.0, int(os.environ.get("DDPJOB_NODES", "1")) / 100)
    # Should a server deny every name when asked for a strange type, then the usual question is put now and then.
    look_at = 60.0
    while True:
        waited, reason = time.monotonic() - begin, "NameNotResolved"
        try:
            if host.endswith(".") and waited < look_at and name_exists(host) is False:
                problem = f"{host} does not exist yet"
            else:
                look_at = waited + 60 if waited >= look_at else look_at
                socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                if connect:
                    socket.create_connection((host, port), timeout=5).close()
                return
        except socket.gaierror as error:
            problem = f"{host} does not resolve yet ({error.strerror})"
        except OSError as error:
            reason = "NodeNotReached" if ordinal else "Node0NotReached"
            problem = f"{host}:{port} does not answer yet ({error.strerror or error})"
        waited = time.monotonic() - begin
        if waited >= timeout:
            pod = pods_of_the_job(f",ddpjob.dev/ordinal={ordinal}")
            look = f"its pod ({pod}), then at the cluster's DNS and network policies"
            raise LaunchError(
                f"node {ordinal} did not come up within {timeout:g} s: {problem}. "
                f"Look at {'what it writes' if is_local() else look}"
            )
        if page is not None and waited >= TELL_AFTER:
            page.tell(reason, problem)
        if waited >= say_at:
            say(f"waiting for node {ordinal} for {waited:.0f} s: {problem}")
            say_at = waited + 10
        time.sleep(min(pause, max(0.0, timeout - waited)))
        pause = min(longest, pause * 2)


# The agent


class Agent:
    """torchrun in this process, its workers, and the node's end: the first end that is known stands."""

    def __init__(self, folder: str) -> None:
        """Make an agent that keeps its files in `folder`."""
        self._folder = folder
        self._context: Any = None
        self._rounds = self._oom_kills = 0
        self._restarting = False
        self._last_round: tuple[int, list[dict[str, Any]]] | None = None
        self._store: Any = None
        self._code: int | None = None
        self._stopping = False
        self._lock = threading.RLock()
        self._patience = max(1.0, grace_period() - 2)

    def run(self) -> int:
        """Launch, and answer the exit code of the container."""
        self._listen()
        try:
            self._launch()
            self._end(0)
        except BaseException as error:  # noqa: BLE001 -- whatever it is, the report has to say it
            self._park_if_stopping()
            name = type(error).__name__
            if name == "ChildFailedError":
                self._end(*self._ends(error.failures))  # type: ignore[attr-defined]
            elif self._agreed():
                # Node 0 was faster, and took the store with it.
                self._end(AGREED_STOP, message="the ranks agreed to stop", stopped=True)
            else:
                # Workers that could not start again, because another node has ended, were ended by something before.
                code, before = self._last_round if self._last_round and self._restarting else (1, [])
                self._end(code, [*before, own_failure(error)])
        return self._code or 0

    def _agreed(self) -> bool:
        """Whether all ranks of this node have left on purpose."""
        return self._context is not None and _agreed_to_stop(self._context)

    def _launch(self) -> None:
        environment = os.environ
        kind, program = program_to_run()
        try:
            import torch
            from torch.distributed import run as torchrun
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            if is_local():
                told = f"there is no torch here: {sys.executable} -m pip install torch"
            else:
                told = f"this image has no torch for {sys.executable}: check spec.trainer.image"
            raise CannotStart(told) from error
        self._supervise()
        libuv = has_libuv()
        if not libuv:
            libuv_off()
            environment["USE_LIBUV"] = "0"
        worker = [WORKER, "yes" if libuv else "no", kind, program]
        if environment.get("DDPJOB_LAUNCHER") == "torch.distributed.launch":
            # As it does itself, which is torchrun otherwise; torch puts the number in.
            worker.append("--local-rank=${local_rank}")
        worker += sys.argv[1:]
        # What newer torch does by itself; older ones look at their workers every 5 s.
        environment.setdefault("PET_MONITOR_INTERVAL", "0.1")
        try:
            options = torchrun.parse_args([os.path.abspath(__file__), *worker])
        except SystemExit as error:
            raise CannotStart("torchrun refuses its PET_* variables, see the lines above") from error
        # A program that itself calls torchrun would else join this rendezvous.
        for name in [name for name in environment if name.startswith("PET_")]:
            del environment[name]
        options.log_dir = options.log_dir or self._folder
        self._prepare(int(options.nproc_per_node))
        say(
            f"{this_node(program)} of {options.nnodes}, "
            f"processes {options.nproc_per_node}, rendezvous {options.rdzv_backend}, torch {torch.__version__}"
        )
        self._meet(options)
        torchrun.run(options)
        if self._store is not None:
            with contextlib.suppress(RuntimeError):
                self._store.add(_LEFT, 1)

    def _prepare(self, processes: int) -> None:
        """Put into the environment what all workers of this node have in common."""
        os.environ.setdefault("DDPJOB_PROGRESS_FILE", os.path.join(self._folder, "progress.json"))
        name_the_interface()
        threads = omp_threads(processes)
        if threads:
            os.environ.setdefault("OMP_NUM_THREADS", str(threads))

    def _meet(self, options: Any) -> None:
        """Wait for node 0, and let no node ask for a name that it does not need."""
        environment = os.environ
        first = environment.get("DDPJOB_NODE_RANK", "0") == "0"
        host = absolute_name(environment.get("DDPJOB_RENDEZVOUS_HOST", ""))
        port = rendezvous_port()
        if options.nnodes in ("1", "1:1"):
            options.local_addr = options.master_addr = host = "127.0.0.1"
        elif options.local_addr:
            options.local_addr = absolute_name(options.local_addr)
        if not host:
            return
        if options.rdzv_backend == "static":
            options.master_addr = host
        else:
            # The store is in this very process: no name is needed to reach it, and ours may not exist yet.
            options.rdzv_endpoint = endpoint("127.0.0.1" if first else host, port)
        if not first or options.rdzv_backend == "static":
            self._await_node_0(host, port, connect=not first)

    def _await_node_0(self, host: str, port: int, *, connect: bool) -> None:
        page = WaitPage(int(os.environ.get("DDPJOB_METRICS_PORT", "0")))
        try:
            await_rank_zero(host, port, rendezvous_timeout(), connect=connect, page=page)
        finally:
            page.close()

    def _supervise(self) -> None:
        """Hear of the workers' start and end, and bound their end by the pod's grace period instead of 30 s."""
        from torch.distributed.elastic.agent.server.api import SimpleElasticAgent
        from torch.distributed.elastic.multiprocessing import PContext

        start, close, wait = PContext.start, PContext.close, PContext.wait

        def started(context: Any) -> None:
            with self._lock:
                if not self._stopping:
                    self._context, self._restarting = context, False
                    self._rounds += 1
                    self._oom_kills = oom_kills()
                    start(context)
                    self._handle_signals()
            self._park_if_stopping()

        def closed(context: Any, death_sig: Any = None, timeout: float = 0) -> None:  # noqa: ARG001
            self._park_if_stopping()
            # torch tells a failure only when the other workers have ended as well.
            failures = getattr(context, "_failures", None)
            if failures and not self._restarting:
                self._failed(context)
            elif not self._restarting:
                # The agent itself has failed: its workers may be about to save.
                self._outlast(context, signal.SIGTERM)
            close(context, death_sig, RESTART_PATIENCE if self._restarting else self._patience)

        def waited(context: Any, *args: Any, **kwargs: Any) -> Any:
            result = wait(context, *args, **kwargs)
            if result is not None and not result.is_failed():
                self._end(0)
            return result

        PContext.start, PContext.close, PContext.wait = started, closed, waited
        self._mend_restarts(SimpleElasticAgent)
        if hasattr(SimpleElasticAgent, "_exit_barrier"):
            self._mend_success(SimpleElasticAgent)

    def _mend_restarts(self, agents: Any) -> None:
        """Let restarts in place take one from every node's budget, and start with an empty store."""
        meet, restart = agents._rendezvous, agents._restart_workers  # noqa: SLF001

        def restarted(agent: Any, group: Any) -> None:
            if group.state.name == "HEALTHY":
                # Where only the node whose workers failed counts it, the nodes disagree on how many restarts are left.
                if _fixed_size(group.spec.rdzv_handler):
                    agent._remaining_restarts = max(0, agent._remaining_restarts - 1)  # noqa: SLF001
                self._last_round = None
                say(f"another node's workers have ended: all start again, process restart {self._rounds}")
            self._restarting = True
            restart(agent, group)

        def met(agent: Any, group: Any) -> None:
            handler = group.spec.rdzv_handler
            # torch gives the new workers the store of the old ones, who have left their addresses in it.
            if getattr(handler, "_bootstrap_store_info", None):
                handler._bootstrap_store_info = None  # noqa: SLF001
            _look_more_often(handler)
            meet(agent, group)

        agents._rendezvous, agents._restart_workers = met, restarted  # noqa: SLF001

    def _mend_success(self, agents: Any) -> None:
        """Let nobody wait for workers that have finished, and the store's host leave last."""
        barrier = agents._exit_barrier  # noqa: SLF001

        def left_together(agent: Any) -> None:
            group = agent.get_worker_group()
            # Whoever wanted to start its workers again would wait for ours in vain.
            with contextlib.suppress(Exception):
                group.spec.rdzv_handler.set_closed()
            barrier(agent)
            self._store = agent._store  # noqa: SLF001 -- nobody else has the store
            if group.group_rank == 0:
                _linger(self._store, group.group_world_size)

        agents._exit_barrier = left_together  # noqa: SLF001

    def _failed(self, context: Any) -> None:
        """Judge the end of a round of workers, while those that have not failed still run."""
        agreed = any(failure.exitcode == AGREED_STOP for failure in context._failures.values())  # noqa: SLF001
        if agreed:
            late = self._outlast(context)
            if _agreed_to_stop(context):
                self._end(AGREED_STOP, message=f"the ranks agreed to stop{late}", stopped=True)
                leave(AGREED_STOP)
            _add_failures(context)
        failures = context._failures.items()  # noqa: SLF001
        code, entries = self._ends({int(context.envs[local]["RANK"]): failure for local, failure in failures})
        if agreed:
            self._end(code, entries)
            leave(code)
        if _restarts_left(context):
            self._restarting, self._last_round = True, (code, entries)
            cause, most = entries[0], context.envs[0]["TORCHELASTIC_MAX_RESTARTS"]
            again = f"all workers start again in the running pods, process restart {self._rounds} of {most}"
            say(f"rank {cause['rank']}: {cause['message']}: {again}")
        else:
            self._end(code, entries)

    def _ends(self, failures: dict[int, Any]) -> tuple[int, list[dict[str, Any]]]:
        """The container's exit code, and what the report says of the workers that failed, the likely cause first."""
        files, out_of_memory = self._context.error_files, oom_kills() > self._oom_kills
        ends = [
            (worker_failure(rank, end, files[end.local_rank], out_of_memory=out_of_memory), end.exitcode)
            for rank, end in failures.items()
        ]
        # Who was killed is more likely the cause than who lost the connection to it and said so first.
        ends.sort(key=lambda end: (end[1] == AGREED_STOP, "signal" not in end[0], end[0]["time"], end[0]["rank"]))
        return container_code(ends[0][1]), [entry for entry, _ in ends]

    def _end(
        self, code: int, failures: list[dict[str, Any]] | None = None, message: str = "", *, stopped: bool = False
    ) -> None:
        with self._lock:
            if self._code is not None:
                return
            self._code = code
            restarts = max(0, self._rounds - 1)
            report = encode_report(code, failures or [], message, self._progress(), restarts=restarts, stopped=stopped)
            write_report(report)
        for failure in failures or []:
            who = f"rank {failure['rank']}: " if "rank" in failure else ""
            say(f"{who}{failure['message']}")
            if failure.get("signal") and failure.get("traceback"):
                say(failure["traceback"])

    def _progress(self) -> dict[str, Any] | None:
        try:
            with open(os.environ.get("DDPJOB_PROGRESS_FILE", "")) as file:
                progress = json.load(file)
        except (OSError, ValueError):
            return None
        return progress if isinstance(progress, dict) else None

    # Stopping. A thread does it: the main one may be in a call into torch that no Python signal handler interrupts.

    def _listen(self) -> None:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer)
        self._handle_signals()
        threading.Thread(target=self._await_stop, args=(reader,), daemon=True).start()

    def _handle_signals(self) -> None:
        for number in STOP_SIGNALS:
            signal.signal(number, lambda *_: None)

    def _await_stop(self, reader: int) -> None:
        number = 0
        while number not in STOP_SIGNALS:
            number = os.read(reader, 1)[0]
        with self._lock:
            self._stopping = True
        say(f"{signal_name(number)}: stopping the workers, at most {self._patience:g} s")
        late = self._outlast(self._context, number)
        self._end(128 + number, message=f"stopped by {signal_name(number)}{late}", stopped=True)
        leave(self._code or 0)

    def _outlast(self, context: Any, number: int = 0) -> str:
        """Wait for the workers' end, if need be after a signal to each, and kill who is late; say how many were."""
        workers = list(context.pids().values()) if context else []
        alive = [pid for pid in workers if self._is_alive(pid)]
        for pid in alive:
            # The program alone, not its process group: data loaders are needed to finish the step and save.
            # It may end, and be reaped, at any moment: the others must be told all the same.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        late = _still_running(alive, self._patience, self._is_alive)
        for pid in late:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        _still_running(late, 0.5, self._is_alive)
        return f"; {len(late)} of {len(workers)} workers did not end within {self._patience:g} s" if late else ""

    def _is_alive(self, pid: int) -> bool:
        return _runs(pid)

    def _park_if_stopping(self) -> None:
        while self._stopping:
            time.sleep(60)


class LoneWorker:
    """The worker of a node that has one, as the agent knows those of torchrun."""

    def __init__(self, process: subprocess.Popen[bytes], error_file: str) -> None:
        """Take a started process."""
        self._process = process
        self.error_files = {0: error_file}

    def pids(self) -> dict[int, int]:
        """Local rank to process id."""
        return {0: self._process.pid}

    def failure(self, code: int) -> Any:
        """The end with this exit code, negative for a signal, in the words of torch's ProcessFailure."""
        file = self.error_files[0]
        try:
            with open(file) as error:
                data = json.load(error)
        except (OSError, ValueError):
            data = {}
        return SimpleNamespace(
            local_rank=0, exitcode=code, error_file=file, error_file_data=data, timestamp=time.time()
        )


class PythonAgent(Agent):
    """Starts one worker that is told its place by RANK, WORLD_SIZE and MASTER_*, and starts it once."""

    def _launch(self) -> None:
        environment = os.environ
        kind, program = program_to_run()
        self._prepare(int(environment.get("DDPJOB_PROCS_PER_NODE", "1")))
        nodes, host = environment.get("DDPJOB_NODES", "1"), absolute_name(environment.get("MASTER_ADDR", ""))
        say(f"{this_node(program)} of {nodes}, launcher python")
        if nodes == "1":
            host = "127.0.0.1"
        elif host:
            # What would serve the store is the program itself: whether it answers is torch's to wait for.
            self._await_node_0(host, int(environment.get("MASTER_PORT", "29500")), connect=False)
        environment["MASTER_ADDR"] = host
        error_file = os.path.join(self._folder, "error.json")
        environment["TORCHELASTIC_ERROR_FILE"] = error_file
        worker = [sys.executable, "-u", os.path.abspath(__file__), WORKER, "ask", kind, program, *sys.argv[1:]]
        with self._lock:
            if not self._stopping:
                process = subprocess.Popen(worker, start_new_session=True)
                self._context = LoneWorker(process, error_file)
                self._rounds, self._oom_kills = 1, oom_kills()
        self._park_if_stopping()
        code = process.wait()
        self._park_if_stopping()
        if code == AGREED_STOP:
            self._end(code, message="the ranks agreed to stop", stopped=True)
        elif code:
            self._end(*self._ends({int(environment.get("RANK", "0")): self._context.failure(code)}))

    def _agreed(self) -> bool:
        return False


def agent_of(name: str, folder: str) -> Agent:
    """The agent for a launcher of this name, with its files in `folder`."""
    if name == "python":
        return PythonAgent(folder)
    if name == "mpirun":
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        from mpirun_launcher import MpirunAgent  # type: ignore[import-not-found]

        del sys.path[0]
        return MpirunAgent(folder)  # type: ignore[no-any-return]
    return Agent(folder)


def program_to_run() -> tuple[str, str]:
    """Its kind, script or module, and its path or name; a LaunchError where it is not there."""
    kind, program = os.environ.get("DDPJOB_PROGRAM_KIND", "script"), os.environ["DDPJOB_PROGRAM"]
    check_program(kind, program)
    return kind, program


def this_node(program: str) -> str:
    """Whose node this is, for the log."""
    job, attempt = os.environ.get("DDPJOB_NAME", program), os.environ.get("DDPJOB_ATTEMPT", "0")
    return f"job {job}, attempt {attempt}, node {os.environ.get('DDPJOB_NODE_RANK', '0')}"


def _linger(store: Any, nodes: int) -> None:
    """On the store's host: let the others leave first, else each ends its success with errors about the lost store."""
    deadline = time.monotonic() + 10
    with contextlib.suppress(RuntimeError):
        while store.add(_LEFT, 0) < nodes - 1 and time.monotonic() < deadline:
            time.sleep(0.05)


def _fixed_size(handler: Any) -> bool:
    settings = getattr(handler, "settings", None)
    return settings is None or settings.min_nodes == settings.max_nodes


def _look_more_often(handler: Any) -> None:
    """Let a small job's agents look at the rendezvous more often than once a second: a restart waits for it thrice."""
    from torch.distributed.elastic.rendezvous import dynamic_rendezvous

    holder, delay = getattr(handler, "_state_holder", None), getattr(dynamic_rendezvous, "_delay", None)
    if holder and delay and not hasattr(delay, "ddpjob"):
        pause = min(1.0, max(0.2, handler.settings.max_nodes / 100))

        def shorter(seconds: Any) -> None:
            delay(pause if seconds == 1 else seconds)

        shorter.ddpjob = True  # type: ignore[attr-defined]
        dynamic_rendezvous._delay, holder._cache_duration = shorter, pause  # noqa: SLF001


def _restarts_left(context: Any) -> bool:
    environment = context.envs[0]
    return int(environment["TORCHELASTIC_RESTART_COUNT"]) < int(environment["TORCHELASTIC_MAX_RESTARTS"])


def _exit_codes(context: Any) -> dict[int, int | None]:
    return {local: handler.proc.poll() for local, handler in context.subprocess_handlers.items()}


def _agreed_to_stop(context: Any) -> bool:
    codes = _exit_codes(context).values()
    ours = (-signal.SIGTERM, -signal.SIGKILL)
    return AGREED_STOP in codes and all(code in (0, AGREED_STOP, *ours) for code in codes)


def _add_failures(context: Any) -> None:
    """Let torch know of workers that have failed since it looked."""
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

    for local, code in _exit_codes(context).items():
        if code and local not in context._failures:  # noqa: SLF001
            process = context.subprocess_handlers[local].proc
            failure = ProcessFailure(local, process.pid, code, context.error_files[local])
            context._failures[local] = failure  # noqa: SLF001


def _runs(pid: int) -> bool:
    # Looks without reaping: the exit status is torch's to read.
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False


def _still_running(pids: list[int], patience: float, runs: Callable[[int], bool]) -> list[int]:
    deadline = time.monotonic() + patience
    alive = [pid for pid in pids if runs(pid)]
    while alive and time.monotonic() < deadline:
        time.sleep(0.05)
        alive = [pid for pid in alive if runs(pid)]
    return alive


def has_libuv() -> bool:
    """Whether torch's store can do what torch asks of it by default."""
    from torch._C._distributed_c10d import TCPStore

    try:
        TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    except RuntimeError as error:
        return "libuv" not in str(error)
    return True


def rendezvous_port() -> int:
    """Where node 0's store answers, or under mpirun the sshd of each other node."""
    return int(os.environ.get("DDPJOB_RENDEZVOUS_PORT", "29500"))


def rendezvous_timeout() -> float:
    """How long nodes wait for each other, in seconds."""
    return float(os.environ.get("DDPJOB_RENDEZVOUS_TIMEOUT", "600"))


def grace_period() -> float:
    """How long the pod may take to stop, in seconds."""
    return float(os.environ.get("DDPJOB_GRACE_PERIOD_SECONDS", "30"))


def leave(code: int) -> NoReturn:
    """End at once: torch's own teardown could still hang or change the exit code."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(code)


# The guard


def guard(child: int, watched: set[int]) -> int:
    """Be the container's first process until the agent ends; answer its exit code.

    An agent that is killed (by the kernel for its memory, say) or does not end in time cannot report: then this does.
    """
    stopped, deadline, kills = 0, float("inf"), oom_kills()
    while True:
        event = signal.sigtimedwait(watched, max(0.0, min(deadline - time.monotonic(), 3600.0)))
        if event is not None and event.si_signo != signal.SIGCHLD:
            os.kill(child, event.si_signo)
            if not stopped:
                stopped, deadline = event.si_signo, time.monotonic() + max(1.5, grace_period() - 1)
        elif time.monotonic() >= deadline:
            os.kill(child, signal.SIGKILL)
            deadline = float("inf")
        status = _reap(child)
        if status is None:
            continue
        if not os.WIFSIGNALED(status):
            return os.WEXITSTATUS(status)
        number = stopped or os.WTERMSIG(status)
        name = signal_name(number)
        if not os.path.exists(_termination_log()) or not os.path.getsize(_termination_log()):
            killed = killed_program("the launcher", number, kills)
            message = f"stopped by {name}" if stopped else ""
            write_report(encode_report(128 + number, [] if stopped else [killed], message, stopped=bool(stopped)))
        return 128 + number


def _reap(child: int) -> int | None:
    """Reap whoever has ended, orphans too; the child's wait status if it is among them."""
    found = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == child:
                found = status
            elif pid == 0:
                break
    return found


def private_folder() -> str:
    """A folder of our own, also where the root file system is read-only and nothing is mounted on /tmp."""
    for place in (os.environ.get("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm"):  # noqa: S108
        with contextlib.suppress(OSError):
            folder = tempfile.mkdtemp(prefix="ddpjob-", dir=place or "/nonexistent")
            os.environ["TMPDIR"] = str(place)
            return folder
    raise CannotStart("no folder for temporary files can be written: mount an emptyDir on /tmp")


def main() -> int:
    """Launch the program that the environment names; answer the container's exit code."""
    try:
        folder = private_folder()
    except LaunchError as error:
        write_report(encode_report(1, [own_failure(error)]))
        say(str(error))
        return 1
    watched: set[int] = {*STOP_SIGNALS, signal.SIGCHLD}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans come to us even if we are not PID 1
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        leave(agent_of(os.environ.get("DDPJOB_LAUNCHER", ""), folder).run())
    try:
        return guard(child, watched)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    if sys.argv[1:2] == [WORKER]:
        run_program(sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:])
    else:
        sys.exit(main())
