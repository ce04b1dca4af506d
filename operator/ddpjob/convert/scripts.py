"""The entry points: a launch line, a PBS script, a Slurm script."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ddpjob.convert import pbs, pbs_requests, slurm
from ddpjob.convert.directives import Directive, directives
from ddpjob.convert.job import Settings
from ddpjob.convert.jobs import Converted, jobs_of
from ddpjob.convert.mpirun_line import ReadFile
from ddpjob.convert.notes import Note
from ddpjob.convert.resources import Allocation
from ddpjob.convert.script import read_script
from ddpjob.convert.shell import UnreadableError
from ddpjob_core.api.errors import UsageProblem


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the scheduler is asked for, what is not carried over, and the variables that it sets."""

    allocation: Allocation
    notes: list[Note]
    variables: dict[str, str]


def from_launch_line(words: Sequence[str], settings: Settings, read_file: ReadFile) -> Converted:
    """The job of a launch line.

    Args:
        words: the line as one string, or word by word as split by the shell.
        settings: what the user adds.
        read_file: reads a hostfile.

    Raises:
        UsageProblem: it cannot be converted.
    """
    if len(words) > 1 and len(words[0].split()) > 1:
        raise UsageProblem(
            f"{words[1]} comes after the launch line",
            "put options of ddpjob before the launch line, and those of torchrun inside it",
        )
    text = words[0] if len(words) == 1 else shlex.join(words)
    return _converted(text, _Asked(Allocation(), [], {}), settings, read_file)


def from_pbs_script(text: str, settings: Settings, read_file: ReadFile) -> Converted:
    """The jobs of a PBS script.

    Raises:
        UsageProblem: it cannot be converted.
    """
    allocation, notes = pbs.pbs_allocation(list(_directives(text, pbs_requests.MARKER, settings)))
    return _converted(text, _Asked(allocation, notes, pbs.pbs_variables(allocation)), settings, read_file)


def from_slurm_script(text: str, settings: Settings, read_file: ReadFile) -> Converted:
    """The jobs of a Slurm script.

    Raises:
        UsageProblem: it cannot be converted.
    """
    allocation, notes = slurm.slurm_allocation(list(_directives(text, slurm.MARKER, settings)))
    return _converted(text, _Asked(allocation, notes, slurm.slurm_variables(allocation)), settings, read_file)


def _directives(text: str, marker: str, settings: Settings) -> Iterator[Directive]:
    try:
        yield from directives(text, marker)
    except ValueError as error:
        raise UsageProblem(f"{settings.source}:{error}") from error


def _converted(text: str, asked: _Asked, settings: Settings, read_file: ReadFile) -> Converted:
    try:
        reading = read_script(text, known=asked.variables, read_file=read_file, tasks=asked.allocation.tasks)
    except UnreadableError as error:
        raise UsageProblem(f"{settings.source}:{error.line}: {error}") from error
    except RecursionError as error:
        raise UsageProblem(f"{settings.source}: brackets are nested too deeply") from error
    return jobs_of(reading, asked.allocation, asked.notes, settings)
