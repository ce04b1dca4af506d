"""A worker's program runs as the plain interpreter would run it, and what ends it is recorded."""

import json
import signal
from pathlib import Path

import pytest

from tests.unit.launcher.running import run, worker

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
    folder: Path, launcher: Path, *, kind: str, program: str, file: str, safe_path: str
) -> None:
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text(PROBE)
    (folder / "link.py").symlink_to(folder / "pkg" / "train.py")
    environment = {"PYTHONSAFEPATH": safe_path, "PYTHONPATH": str(folder) if safe_path else ""}
    plain = run([*(["-m"] if kind == "module" else []), program, "--a", "b c"], folder, **environment)
    ours = run(worker(launcher, kind, program, "--a", "b c"), folder, **environment)
    assert plain.returncode == 0, plain.stderr
    assert (ours.stdout, ours.stderr, ours.returncode) == (plain.stdout, plain.stderr, plain.returncode)


@pytest.mark.parametrize("kind", ["script", "module"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_program_ends_as_it_would_end_without_the_launcher(
    folder: Path, launcher: Path, ending: str, kind: str
) -> None:
    (folder / "train.py").write_text(ENDINGS[ending])
    plain = run(["train.py"] if kind == "script" else ["-m", "train"], folder)
    ours = run(worker(launcher, kind, "train.py" if kind == "script" else "train"), folder, TORCHELASTIC_ERROR_FILE="")
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
def test_what_ends_a_program_is_recorded_in_torchs_form(
    folder: Path, launcher: Path, ending: str, message: str
) -> None:
    (folder / "train.py").write_text(ENDINGS[ending])
    run(worker(launcher, "script", "train.py"), folder, TORCHELASTIC_ERROR_FILE=str(folder / "error.json"))
    recorded = json.loads((folder / "error.json").read_text())["message"]
    assert recorded["message"].startswith(message)
    assert int(recorded["extraInfo"]["timestamp"]) == int(recorded["extraInfo"]["time"])
    assert "launcher" not in recorded["extraInfo"]["py_callstack"]


GROUP = "import types; sys.modules['torch.distributed'] = types.SimpleNamespace(is_initialized=lambda: True)"
ARGUMENTS = "import argparse; argparse.ArgumentParser(prog='train').parse_args(['--fast'])"


@pytest.mark.parametrize(
    ("program", "message", "permanent"),
    [
        ("def f(:\n    pass", "SyntaxError: ", True),
        ("print('\0')", "", True),
        ("import broken", "SyntaxError: ", True),
        ("def main():\n    import broken\nmain()", "SyntaxError: ", True),
        ("import gone", "ModuleNotFoundError: No module named 'gone'", True),
        ("from pkg import gone", "ImportError: cannot import name 'gone' from 'pkg'", True),
        ("import pkg.needs", "ModuleNotFoundError: No module named 'gone'", True),
        ("import importlib; importlib.import_module('gone')", "ModuleNotFoundError: ", True),
        (ARGUMENTS, "SystemExit: 2: train: error: unrecognized arguments: --fast", True),
        ("import sys; sys.exit(2)", "SystemExit: 2", False),
        ("import sys; sys.exit('no data')", "SystemExit: no data", False),
        ("1 / 0", "ZeroDivisionError: division by zero", False),
        ("open('gone')", "FileNotFoundError: ", False),
        ("raise ValueError('bad')", "ValueError: bad", False),
        ("import ast; ast.literal_eval('1 +')", "SyntaxError: ", False),
        ("compile('1 +', '<string>', 'exec')", "SyntaxError: ", False),
        ("raise ImportError('libcuda.so.1: cannot open shared object file')", "ImportError: libcuda.so.1", False),
        (f"import sys; {GROUP}; import gone", "ModuleNotFoundError: ", False),
        (f"import sys; {GROUP}; {ARGUMENTS}", "SystemExit: 2: train: error: ", False),
    ],
)
def test_an_error_that_each_start_meets_is_recorded_as_such(
    folder: Path, launcher: Path, program: str, message: str, *, permanent: bool
) -> None:
    (folder / "train.py").write_text(program)
    (folder / "broken.py").write_text("def f(:")
    (folder / "pkg" / "needs.py").write_text("import gone")
    for count, expected in (("0", permanent), ("1", False)):
        file = folder / f"error-{count}.json"
        run(
            worker(launcher, "script", "train.py"),
            folder,
            TORCHELASTIC_ERROR_FILE=str(file),
            TORCHELASTIC_RESTART_COUNT=count,
        )
        recorded = json.loads(file.read_text())["message"]
        assert recorded["message"].startswith(message)
        assert recorded["extraInfo"]["permanent"] is expected


@pytest.mark.parametrize(
    ("module", "message"), [("pkg", "No module named pkg.__main__"), ("pkg.gone", "No module named pkg.gone")]
)
def test_a_module_that_the_interpreter_does_not_find_is_not_there_at_the_next_start_either(
    folder: Path, launcher: Path, module: str, message: str
) -> None:
    file = folder / "error.json"
    run(worker(launcher, "module", module), folder, TORCHELASTIC_ERROR_FILE=str(file))
    recorded = json.loads(file.read_text())["message"]
    assert message in recorded["message"]
    assert recorded["extraInfo"]["permanent"] is True


@pytest.mark.parametrize("ending", ["exit none", "atexit", "killed"])
def test_nothing_is_recorded_where_there_is_no_exception(folder: Path, launcher: Path, ending: str) -> None:
    (folder / "train.py").write_text(ENDINGS[ending])
    run(worker(launcher, "script", "train.py"), folder, TORCHELASTIC_ERROR_FILE=str(folder / "error.json"))
    assert not (folder / "error.json").exists()


def test_what_the_program_recorded_itself_stays(folder: Path, launcher: Path) -> None:
    (folder / "error.json").write_text("mine")
    (folder / "train.py").write_text(ENDINGS["exception"])
    run(worker(launcher, "script", "train.py"), folder, TORCHELASTIC_ERROR_FILE=str(folder / "error.json"))
    assert (folder / "error.json").read_text() == "mine"


def test_a_crash_in_native_code_leaves_the_python_stack(folder: Path, launcher: Path) -> None:
    (folder / "train.py").write_text("import ctypes\ndef deep():\n    ctypes.string_at(0)\ndeep()")
    ended = run(worker(launcher, "script", "train.py"), folder, TORCHELASTIC_ERROR_FILE=str(folder / "error.json"))
    assert ended.returncode == -signal.SIGSEGV
    stack = (folder / "fault.txt").read_text()
    assert stack.startswith("Fatal Python error: Segmentation fault")
    assert 'train.py", line 3 in deep' in stack
