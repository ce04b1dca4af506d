"""The file that a pod gets."""

import ast
import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import ddpjob_launcher as package
from ddpjob_core.api.launchers import Launcher
from ddpjob_launcher.archive import PACKAGE, archive, sources
from tests.unit.launcher.running import run, worker

MODULES = sorted({launcher.traits.module for launcher in Launcher})
SOURCES = {path.stem: path.read_text(encoding="utf-8") for path in Path(package.__file__).parent.glob("*.py")}
DELIVERED = {name: text for module in MODULES for name, text in sources(module).items()}


def _statements(source: str) -> list[tuple[int, str]]:
    """What a module does, line by line, without its docstrings and the types of its functions."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef):
            node.returns = None
    return [
        (node.lineno, ast.unparse(node).partition("\n")[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]


def test_each_module_is_there_statement_by_statement_on_its_line() -> None:
    delivered = {Path(name).stem: text for name, text in DELIVERED.items() if name.startswith(PACKAGE)}
    assert delivered.keys() == SOURCES.keys() - {"archive", "archive_main"}
    for name, text in delivered.items():
        assert _statements(text) == _statements(SOURCES[name])
        assert not [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.arg) and node.annotation]
        assert "#" not in text.replace("chr(35)", "")
        assert '"""' not in text


@pytest.mark.parametrize("module", MODULES)
def test_a_launcher_travels_with_what_it_needs_and_without_the_others(module: str) -> None:
    names = {Path(name).stem for name in sources(module)}
    assert {"main", "guard", "worker", module} <= names
    assert not names & {*MODULES} - {module}
    assert ("ssh" in names) is (module == "mpirun")


@pytest.mark.parametrize("module", MODULES)
def test_it_takes_at_most_25_kib(module: str) -> None:
    assert len(archive(module)) <= 25 << 10


def test_the_same_sources_make_the_same_file() -> None:
    again = "import sys; from ddpjob_launcher.archive import archive; sys.stdout.buffer.write(archive('torchrun'))"
    made = subprocess.run([sys.executable, "-c", again], capture_output=True, check=True)
    assert made.stdout == archive("torchrun")
    with zipfile.ZipFile(io.BytesIO(made.stdout)) as packed:
        assert {entry.date_time for entry in packed.infolist()} == {(1980, 1, 1, 0, 0, 0)}


@pytest.mark.parametrize("file", DELIVERED)
def test_python_3_8_can_read_it(file: str) -> None:
    ast.parse(DELIVERED[file], feature_version=(3, 8))


@pytest.mark.parametrize("file", DELIVERED)
def test_it_needs_the_standard_library_and_torch_alone(file: str) -> None:
    modules = set()
    for node in ast.walk(ast.parse(DELIVERED[file])):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules.add(str(node.module).partition(".")[0])
    assert modules <= {*sys.stdlib_module_names, "torch"}


USERS_OWN = """
import importlib, multiprocessing, pickle, sys
names = sys.argv[1:]

class Sample: pass

def child(queue):
    queue.put([importlib.import_module(name).mine for name in names])

if __name__ == "__main__":
    print([importlib.import_module(name).mine for name in names])
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    print(queue.get(timeout=60))
    print(type(pickle.loads(pickle.dumps(Sample()))).__module__)
    process.join()
    print([path for path in sys.path if path.endswith(".pyz")])
"""


@pytest.mark.parametrize("kind", ["script", "module"])
def test_a_programs_modules_may_have_the_names_of_ours(folder: Path, launcher: Path, kind: str) -> None:
    names = [*(name for name in SOURCES if name != "__init__"), "ddpjob_launcher", "launcher", "__main__x"]
    for name in names:
        (folder / f"{name}.py").write_text("mine = True")
    (folder / "train.py").write_text(USERS_OWN)
    done = run(worker(launcher, kind, "train.py" if kind == "script" else "train", *names), folder, PYTHONPATH="")
    assert done.stderr == ""
    every = str([True] * len(names))
    assert done.stdout.splitlines() == [every, every, "__main__", "[]"]


def test_nothing_of_ours_is_loaded_under_a_name_that_a_program_could_import(folder: Path, launcher: Path) -> None:
    (folder / "train.py").write_text(
        f"import sys\n"
        f"print([name for name, module in sys.modules.items()"
        f" if {launcher.name!r} in str(getattr(module, '__file__', '')) and name.partition('.')[0].isidentifier()])\n"
    )
    done = run(worker(launcher, "script", "train.py"), folder)
    assert done.stdout == "[]\n", done.stderr
