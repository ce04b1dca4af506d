"""The program `ddpjob`, which `kubectl ddpjob` runs as well."""

from typing import Any

import typer
from typer.core import TyperGroup

from ddpjob.cli import control, delete, doctor, logs, render, run, status, top, why
from ddpjob.cli.output import print_error
from ddpjob.errors import DDPJobError, ExitCode


class Program(TyperGroup):
    """The commands, with a user's errors told in a sentence instead of a traceback."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 as in the base class
        """Run a command."""
        try:
            return super().invoke(ctx)
        except DDPJobError as error:
            print_error(error)
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt as interrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from interrupt


app = typer.Typer(
    cls=Program,
    name="ddpjob",
    help="Run PyTorch DDP trainings on Kubernetes, watch them, and find out what is wrong with them.",
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
app.command("suspend")(control.suspend)
app.command("resume")(control.resume)
app.command("scale")(control.scale)
app.command("delete")(delete.delete)


def main() -> None:
    """The entry point of the installed program."""
    app()


if __name__ == "__main__":
    main()
