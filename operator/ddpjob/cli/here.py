"""`ddpjob run --local`: the job of a file, or of a script, on this machine."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ddpjob.manifests.documents import Document
from ddpjob.manifests.program import Request, job_manifest, name_for
from ddpjob_core.api.errors import UsageProblem

_SUFFIX: Final = "local"
_NO_IMAGE: Final = "none"


def documents_here(
    program: Sequence[str],
    *,
    module: str | None,
    name: str | None,
    nodes: int,
    procs_per_node: int | str,
    env: Mapping[str, str],
) -> list[Document]:
    """The job for a program of this machine, which runs in place, next to what it imports and reads.

    It has its own name and a folder for checkpoints, so that the same command continues where it was stopped. It is
    not restarted: a user who starts a program in a terminal wants to see its error, as with torchrun.

    Raises:
        UsageProblem: there is no such program.
    """
    args = tuple(program)
    script: Path | None = None
    if module is None:
        if not args:
            raise UsageProblem("nothing to run", "pass a script (train.py), --module package.train, or -f job.yaml")
        script, args = Path(args[0]), args[1:]
        if not script.exists():
            raise UsageProblem(f"{script} does not exist: check its path from {Path.cwd()}")
    chosen = name or name_for(module or (script.name if script is not None else ""), _SUFFIX)
    request = Request(chosen, _NO_IMAGE, None, module or "program", args, nodes, procs_per_node, env)
    job: dict[str, Any] = job_manifest(request)
    if script is not None:
        del job["spec"]["trainer"]["module"]
        job["spec"]["trainer"]["script"] = str(script.resolve())
    else:
        # A module of this name in another folder is another program.
        job["spec"]["trainer"]["workingDir"] = str(Path.cwd())
    job["spec"].update(checkpoint={"claimName": chosen}, restart={"maxRestarts": 0, "maxProcessRestarts": 0})
    return [Document("the command line", job)]


def run_here(
    documents: Sequence[Document], namespace: str | None, home: Path | None, host_paths: Sequence[Path] = ()
) -> int:
    """Run the job of the documents to its end; the exit code of the command.

    Args:
        documents: of a file.
        namespace: of a job that does not name one.
        home: where jobs are kept; the user's own folder where it is left out.
        host_paths: folders and files of this machine that its volumes may be.

    Raises:
        UsageProblem: the job is wrong, or cannot run without a cluster.
    """
    # Loaded here: no other command needs the operator's decisions.
    from ddpjob.local.command import run_local  # noqa: PLC0415
    from ddpjob.local.manifest import local_manifest  # noqa: PLC0415
    from ddpjob.local.records import default_home  # noqa: PLC0415

    return run_local(local_manifest(documents, namespace, host_paths), home or default_home(os.environ))
