"""`ddpjob from-torchrun`, `from-pbs` and `from-slurm`: manifests from launch lines and job scripts."""

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

# Everything in the launch line belongs to the launcher, options included.
SETTINGS: Final[dict[str, Any]] = {"allow_interspersed_args": False}
_LINE: Final = "the command line"

Image: TypeAlias = Annotated[
    str | None, typer.Option(envvar="DDPJOB_IMAGE", help="Image with Python 3 and torch.", show_default=False)
]
Name: TypeAlias = Annotated[
    str | None,
    typer.Option(callback=check_names, help="Name of the job. Default: the name of the script.", show_default=False),
]
Gpus: TypeAlias = Annotated[int | None, typer.Option(min=0, help="GPUs per node. Default: what the script requests.")]
Output: TypeAlias = Annotated[ManifestFormat, typer.Option("--output", "-o", help="Output format.")]
ScriptFile: TypeAlias = Annotated[
    Path, typer.Argument(metavar="SCRIPT", help="The job script; - reads standard input.", show_default=False)
]


def from_torchrun(
    *,
    line: Annotated[
        list[str],
        typer.Argument(metavar="LINE", help="The launch line, quoted or as separate words.", show_default=False),
    ],
    image: Image = None,
    name: Name = None,
    gpus: Gpus = None,
    namespace: ManifestNamespace = None,
    output: Output = ManifestFormat.YAML,
) -> None:
    """Convert a launch line to a DDPJob: ddpjob from-torchrun --image IMG 'torchrun --nnodes=2 train.py'.

    The line may start torchrun, python -m torch.distributed.run or launch, python, or mpirun. The manifest goes to
    standard output. Standard error lists what is not carried over, and what replaces it.
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
    """Convert a PBS script to DDPJobs: one per launch line, with the resources and the time limit of the directives.

    The manifests go to standard output. Standard error lists what is not carried over, and what replaces it.
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
    """Convert a Slurm script to DDPJobs: one per launch line, with the resources and the time limit of the directives.

    The manifests go to standard output. Standard error lists what is not carried over, and what replaces it.
    """
    settings = _settings(name_of(script), image, name, gpus, namespace)
    _print(from_slurm_script(read_text(script), settings, _file_here), settings, output)


def _settings(source: str, image: str | None, name: str | None, gpus: int | None, namespace: str | None) -> Settings:
    if image is None:
        raise UsageProblem("--image is missing", "pass an image with Python 3 and torch, or set DDPJOB_IMAGE")
    return Settings(source, image, name, gpus, namespace)


def _file_here(name: str) -> str | None:
    """The content of a hostfile, if it exists on this machine too."""
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
