"""docs/cli.md names every command and option of the command line, and none that is not there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ddpjob.cli.app import app
from ddpjob.views.exit_codes import ExitCode
from ddpjob_core.api.crd import custom_resource_definition

PAGE = (Path(__file__).parents[3] / "docs/cli.md").read_text()
# Of the program itself; the rest belongs to the user's script in an example.
OTHERS = {"--help", "--version", "--install-completion", "--show-completion", "--lr"}
TORCHRUNS = {"--nnodes", "--nproc-per-node", "--node-rank", "--rdzv-backend"}


def options() -> dict[str, set[str]]:
    group = typer.main.get_command(app)
    commands = group.commands  # type: ignore[attr-defined]
    return {
        name: {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for name, command in commands.items()
    }


def test_every_command_has_its_row() -> None:
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `ddpjob")]
    told = {word for row in rows for word in re.findall(r"`(?:ddpjob )?(\w[\w-]*)", row)}
    assert told == set(options())


def test_every_option_is_named_and_every_named_one_exists() -> None:
    known = {option for names in options().values() for option in names if option.startswith("--")}
    named = set(re.findall(r"--[a-z][-a-z]*", PAGE)) - OTHERS - TORCHRUNS
    # What people type of it is -f.
    assert named == known - {"--filename"}


def test_every_field_that_is_named_exists() -> None:
    shown = [CliRunner().invoke(app, [name, "--help"]).stdout for name in options()]
    named = {match for text in (PAGE, *shown) for match in re.findall(r"\bspec\.([a-z]\w*(?:\.[a-z]\w*)*)", text)}
    schema = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for path in named:
        field = schema["properties"]["spec"]
        for part in path.split("."):
            assert part in field["properties"], f"spec.{path}"
            field = field["properties"][part]


def test_every_exit_code_has_its_row() -> None:
    rows = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    assert rows == {code.value for code in ExitCode}


def test_every_command_explains_itself() -> None:
    for name in options():
        shown = CliRunner().invoke(app, [name, "--help"])
        assert shown.exit_code == 0
        assert "Usage" in shown.stdout


def test_without_its_packages_the_program_says_how_they_are_installed() -> None:
    # What a plain `pip install ddpjob` brings.
    program = "import sys; sys.modules['typer'] = None; from ddpjob.cli.entry import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "Error: the package typer is missing\n  -> pip install 'ddpjob[cli]'\n"


@pytest.mark.parametrize(
    ("before", "interrupted", "code"),
    [
        ("pass", "os.kill(os.getpid(), signal.SIGINT)", ExitCode.INTERRUPTED),
        # Where Python lets no exception out.
        (
            "pass",
            "type('Expired', (), {'__del__': lambda _: os.kill(os.getpid(), signal.SIGINT)})()",
            ExitCode.INTERRUPTED,
        ),
        # As a shell starts what runs in the background.
        ("signal.signal(signal.SIGINT, signal.SIG_IGN)", "os.kill(os.getpid(), signal.SIGINT)", ExitCode.OK),
    ],
)
def test_ctrl_c_while_the_program_is_still_being_loaded_ends_it_without_a_traceback(
    before: str, interrupted: str, code: ExitCode
) -> None:
    program = f"""
import os, signal, sys
{before}
class Interrupt:
    def find_spec(self, name, *rest):
        if name == "ddpjob.cli.app":
            {interrupted}
sys.meta_path.insert(0, Interrupt())
from ddpjob.cli.entry import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")


def test_importing_ddpjob_imports_no_client() -> None:
    program = "import sys, ddpjob, ddpjob_core.decide; print(sorted({'kubernetes', 'typer', 'rich'} & {*sys.modules}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_program_tells_its_version() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout.startswith("ddpjob ")
