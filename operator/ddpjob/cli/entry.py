"""The entry point of the installed programs `ddpjob` and `kubectl-ddpjob`."""

import sys

from ddpjob.errors import ExitCode

_PACKAGES = ("typer", "rich", "kubernetes", "urllib3")


def main() -> None:
    """Run the command line, or say how its packages are installed."""
    try:
        from ddpjob.cli.app import app  # noqa: PLC0415 what is not installed is told in a sentence
    except KeyboardInterrupt:
        # Loading takes long enough for a person to think better of it.
        sys.exit(ExitCode.INTERRUPTED)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _PACKAGES:
            raise
        sys.stderr.write(f"Error: the package {error.name} is missing\n  -> pip install 'ddpjob[cli]'\n")
        sys.exit(ExitCode.USAGE)
    app()


if __name__ == "__main__":
    main()
