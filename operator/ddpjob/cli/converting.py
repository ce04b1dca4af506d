"""`ddpjob from-torchrun`, `from-pbs` and `from-slurm`: manifests from the lines and scripts that people have."""

import sys
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer

from ddpjob.cli.files import name_of, read_text
from ddpjob.cli.options import ManifestFormat, ManifestNamespace, check_names
from ddpjob.cli.output import manifests_json, manifests_text, say
from ddpjob.convert.job import Settings
from ddpjob.convert.jobs import Converted
from ddpjob.convert.scripts import from_launch_line, from_pbs_script, from_slurm_script
from ddpjob_core.api.errors import UsageProblem

# What stands in the launch line is the launcher's, options included.
SETTINGS: Final[dict[str, Any]] = {"allow_interspersed_args": False}
_LINE: Final = "the command line"

Image: TypeAlias = Annotated[
    str | None, typer.Option(envvar="DDPJOB_IMAGE", help="Image with Python 3 and torch.", show_default=False)
]
Name: TypeAlias = Annotated[
    str | None,
    typer.Option(callback=check_names, help="Name of the job; that of the script when left out.", show_default=False),
]
Gpus: TypeAlias = Annotated[
    int | None, typer.Option(min=0, help="GPUs of each node; what the script asks for when left out.")
]
Output: TypeAlias = Annotated[ManifestFormat, typer.Option("--output", "-o", help="Form.")]
ScriptFile: TypeAlias = Annotated[
    Path, typer.Argument(metavar="SCRIPT", help="The job script; - reads standard input.", show_default=False)
]


def from_torchrun(
    *,
    line: Annotated[
        list[str], typer.Argument(metavar="LINE", help="The launch line, as one text or as words.", show_default=False)
    ],
    image: Image = None,
    name: Name = None,
    gpus: Gpus = None,
    namespace: ManifestNamespace = None,
    output: Output = ManifestFormat.YAML,
) -> None:
    """A DDPJob from a launch line: ddpjob from-torchrun --image IMG 'torchrun --nnodes=2 train.py'.

    The line may be one of torchrun, python -m torch.distributed.run or launch, python, or mpirun. The manifest goes to
    standard output; what is not carried over is told on standard error, with what takes its place.
    """
    settings = _settings(_LINE, image, name, gpus, namespace)
    _print(from_launch_line(line, settings, _file_here), settings, output)


def from_pbs(
    *,
    script: ScriptFile,
    image: Image = None,
    name: Name = None,
    gpus: Gpus = None,
    namespace: ManifestNamespace = None,
    output: Output = ManifestFormat.YAML,
) -> None:
    """DDPJobs from a PBS script: one for each launch line in it, with the resources and the time of its directives.

    The manifests go to standard output; what is not carried over is told on standard error, with what takes its place.
    """
    settings = _settings(name_of(script), image, name, gpus, namespace)
    _print(from_pbs_script(read_text(script), settings, _file_here), settings, output)


def from_slurm(
    *,
    script: ScriptFile,
    image: Image = None,
    name: Name = None,
    gpus: Gpus = None,
    namespace: ManifestNamespace = None,
    output: Output = ManifestFormat.YAML,
) -> None:
    """DDPJobs from a Slurm script: one for each launch line in it, with the resources and the time of its directives.

    The manifests go to standard output; what is not carried over is told on standard error, with what takes its place.
    """
    settings = _settings(name_of(script), image, name, gpus, namespace)
    _print(from_slurm_script(read_text(script), settings, _file_here), settings, output)


def _settings(source: str, image: str | None, name: str | None, gpus: int | None, namespace: str | None) -> Settings:
    if image is None:
        raise UsageProblem("--image is missing", "give an image with Python 3 and torch, or set DDPJOB_IMAGE")
    return Settings(source, image, name, gpus, namespace)


def _file_here(name: str) -> str | None:
    """A hostfile, where the script's is on this machine too."""
    path = Path(name)
    try:
        # A device would never end.
        return path.read_text() if path.is_file() else None
    except (OSError, UnicodeDecodeError, ValueError):
        return None


def _print(converted: Converted, settings: Settings, output: ManifestFormat) -> None:
    form = manifests_json if output is ManifestFormat.JSON else manifests_text
    sys.stdout.write(form([document.content for document in converted.documents]))
    sys.stdout.flush()
    for note in converted.notes:
        say(note.sentence(settings.source))
