"""The program `ddpjob`, which `kubectl ddpjob` runs as well."""

from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ddpjob.cli import control, converting, delete, doctor, logs, render, run, status, top, why
from ddpjob.cli.output import print_error
from ddpjob.views.exit_codes import ExitCode, exit_code
from ddpjob_core.api.errors import DDPJobError


class Program(TyperGroup):
    """The commands, with a sentence instead of a traceback for a user's error."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 as in the base class
        """Run a command."""
        try:
            return super().invoke(ctx)
        except DDPJobError as error:
            print_error(error)
            raise typer.Exit(exit_code(error)) from error
        except KeyboardInterrupt as interrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from interrupt


app = typer.Typer(
    cls=Program,
    name="ddpjob",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", context_settings=run.SETTINGS)(run.run)
app.command("status")(status.status)
app.command("top")(top.top)
app.command("logs")(logs.logs)
app.command("why")(why.why)
app.command("doctor")(doctor.doctor)
app.command("render")(render.render)
app.command("from-torchrun", context_settings=converting.SETTINGS)(converting.from_torchrun)
app.command("from-pbs")(converting.from_pbs)
app.command("from-slurm")(converting.from_slurm)
app.command("suspend")(control.suspend)
app.command("resume")(control.resume)
app.command("scale")(control.scale)
app.command("delete")(delete.delete)


def _version(wanted: bool) -> None:  # noqa: FBT001 a callback of an option
    if wanted:
        typer.echo(f"ddpjob {version('ddpjob')}")
        raise typer.Exit


@app.callback()
def program(
    *,
    _show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Run PyTorch DDP trainings on Kubernetes, watch them, and find out what is wrong with them."""
