"""Scripts and launch lines converted as the command line does it, with every launcher that the API is to know."""

from collections.abc import Mapping
from typing import Any

import pytest

from ddpjob.convert import jobs
from ddpjob.convert.directives import directives
from ddpjob.convert.job import Settings, Supported
from ddpjob.convert.jobs import Converted
from ddpjob.convert.notes import Note
from ddpjob.convert.pbs import pbs_allocation
from ddpjob.convert.pbs_requests import MARKER as PBS
from ddpjob.convert.resources import Allocation
from ddpjob.convert.scripts import from_launch_line, from_pbs_script, from_slurm_script
from ddpjob.convert.slurm import MARKER as SLURM
from ddpjob.convert.slurm import slurm_allocation
from ddpjob.manifests.documents import Document, checked_job

HERE = Supported()
ALL = Supported(
    frozenset({"torchrun", "torch.distributed.launch", "python", "mpirun"}), frozenset({"auto", "gloo", "nccl", "mpi"})
)


def check_without_what_is_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check all that this version knows of the API, and let launchers and backends pass that it is still to get."""
    later = {"launcher": ALL.launchers - HERE.launchers, "backend": ALL.backends - HERE.backends}

    def check(documents: list[Document]) -> Document:
        (document,) = documents
        spec = document.content["spec"]
        known = {key: value for key, value in spec.items() if key not in later or value not in later[key]}
        checked_job([Document(document.file, {**document.content, "spec": known}, document.lines)])
        return document

    monkeypatch.setattr(jobs, "checked_job", check)


def settings(supported: Supported = HERE, **given: Any) -> Settings:
    return Settings(**{"source": "script", "image": "img", "supported": supported, **given})


def line(text: str, *more: str, files: Mapping[str, str] | None = None, **given: Any) -> Converted:
    return from_launch_line([text, *more], settings(**given), (files or {}).get)


def pbs(text: str, files: Mapping[str, str] | None = None, **given: Any) -> Converted:
    return from_pbs_script(text, settings(**given), (files or {}).get)


def slurm(text: str, files: Mapping[str, str] | None = None, **given: Any) -> Converted:
    return from_slurm_script(text, settings(**given), (files or {}).get)


def specs(converted: Converted) -> list[dict[str, Any]]:
    return [document.content["spec"] for document in converted.documents]


def spec(converted: Converted) -> dict[str, Any]:
    """The spec of the one job, without the image that all have."""
    (found,) = specs(converted)
    trainer = {key: value for key, value in found["trainer"].items() if key != "image"}
    return {**found, "trainer": trainer}


def told(converted: Converted) -> list[tuple[int, str, str]]:
    return [(note.line, note.text, note.message) for note in converted.notes]


def about(converted: Converted, text: str) -> str:
    """The notes about a piece of the script."""
    return "\n".join(note.message for note in converted.notes if text in note.text)


def asked_of_pbs(*lines: str) -> tuple[Allocation, list[Note]]:
    return pbs_allocation(list(directives("\n".join(f"#PBS {line}" for line in lines), PBS)))


def asked_of_slurm(*lines: str) -> tuple[Allocation, list[Note]]:
    return slurm_allocation(list(directives("\n".join(f"#SBATCH {line}" for line in lines), SLURM)))
