"""`ddpjob run`: creates a job from a manifest, or from a script and a few options, and follows it to its end."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ddpjob.cli.effects import NoEffect, refuse_without_effect
from ddpjob.cli.files import read_file
from ddpjob.cli.following import follow_to_end
from ddpjob.cli.here import documents_here, run_here
from ddpjob.cli.options import Context, Format, JobFile, Kubeconfig, Namespace, Output, check_names, connect
from ddpjob.cli.output import console, manifests_json, manifests_text, print_json, say
from ddpjob.cluster.submission import Submission, submission_of, submit
from ddpjob.local.manifest import local_manifest
from ddpjob.manifests.documents import Document, named_namespace, placed
from ddpjob.manifests.files import read_bytes
from ddpjob.manifests.program import Request, job_manifest, name_for, parse_env, parse_processes, script_of
from ddpjob.views.exit_codes import ExitCode
from ddpjob.views.status import status_json
from ddpjob_core.api.constants import MAX_NODES
from ddpjob_core.api.errors import UsageProblem
from ddpjob_core.api.spec import DDPJobSpec

# Everything after the script is passed to it, options included, as with torchrun.
SETTINGS: Final[dict[str, Any]] = {"allow_interspersed_args": False}
_SUFFIX_BYTES: Final = 3


def run(
    *,
    ctx: typer.Context,
    program: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SCRIPT] [ARGS]...", help="train.py and its arguments.", show_default=False),
    ] = None,
    filename: JobFile = None,
    module: Annotated[
        str | None, typer.Option("--module", "-m", help="Run a module of the image instead of a script.")
    ] = None,
    image: Annotated[
        str | None, typer.Option(envvar="DDPJOB_IMAGE", help="Image with Python 3 and torch.", show_default=False)
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, max=MAX_NODES, help="Number of nodes, one pod each.")] = 1,
    procs_per_node: Annotated[str, typer.Option(help="Processes per node, or auto.")] = "auto",
    name: Annotated[
        str | None,
        typer.Option(help="Name of the job. Default: the name of the program and a suffix.", callback=check_names),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", metavar="NAME=VALUE", help="Environment variable. May be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be created.")] = False,
    follow: Annotated[bool, typer.Option(help="Follow the job until it ends.")] = True,
    logs: Annotated[bool, typer.Option("--logs", help="Also show the log of rank 0's node.")] = False,
    local: Annotated[
        bool, typer.Option("--local", help="Run it on this machine, without a cluster: nodes are groups of processes.")
    ] = False,
    home: Annotated[
        Path | None,
        typer.Option(envvar="DDPJOB_HOME", help="Where --local keeps checkpoints and logs.", show_default=False),
    ] = None,
    allow_host_path: Annotated[
        list[Path] | None,
        typer.Option(
            "--allow-host-path",
            metavar="PATH",
            help="A folder or file of this machine that a hostPath of the job may be with --local. May be repeated.",
        ),
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = Format.TEXT,
) -> None:
    """Run a training job: ddpjob run -f job.yaml, or ddpjob run --nodes 2 --image IMG train.py ARGS.

    The script is stored with the job and deleted with it. The exit code is 0 if the job succeeds and 1 if it fails.
    Ctrl-C stops watching, but not the job. With --local, Ctrl-C lets the training save and stops it, and the same
    command continues from there.
    """
    refuse_without_effect(
        ctx,
        _no_effects(file=filename is not None, local=local, follow=follow, answers=dry_run or output is Format.TEXT),
    )
    given: dict[str, Any] = {
        "module": module,
        "name": name,
        "nodes": nodes,
        "procs_per_node": parse_processes(procs_per_node),
        "env": parse_env(env or []),
    }
    if local:
        documents = read_file(filename) if filename is not None else documents_here(program or [], **given)
        where = named_namespace(documents, namespace)
        if dry_run:
            local_manifest(documents, where, allow_host_path or ())
            _print([placed(document.content, where) for document in documents], output)
            return
        raise typer.Exit(run_here(documents, where, home, allow_host_path or ()))
    if filename is not None:
        submission = submission_of(read_file(filename))
    else:
        submission = prepare(program or [], image=image, namespace=namespace, **given)
    if dry_run:
        _print(submission.manifests(namespace), output)
        return
    _on_cluster(
        submission, follow=follow, logs=logs, namespace=namespace, context=context, kubeconfig=kubeconfig, output=output
    )


def _no_effects(*, file: bool, local: bool, follow: bool, answers: bool) -> list[NoEffect]:
    """Options without effect; a dry run accepts the options of the run that it stands for."""
    in_file = ("program", "module", "image", "name", "env", "nodes", "procs_per_node")
    elsewhere = ("context", "kubeconfig", *(() if follow else ("follow",)))
    return [
        NoEffect(file, in_file, "-f takes everything from the file"),
        NoEffect(local, elsewhere, "--local runs on this machine until the job ends"),
        NoEffect(local, ("image",), "--local uses the Python of this machine"),
        NoEffect(local, ("logs",), "--local shows all logs"),
        NoEffect(local and not answers, ("output",), "--local prints the output of the training unchanged"),
        NoEffect(not local, ("allow_host_path",), "a cluster decides who may have a hostPath"),
        NoEffect(not local, ("home",), "only --local keeps files on this machine"),
        NoEffect(not follow, ("logs",), "--no-follow returns before there are logs"),
    ]


def _print(manifests: list[dict[str, Any]], output: Format) -> None:
    form = manifests_json if output is Format.JSON else manifests_text
    typer.echo(form(manifests), nl=False)


def prepare(
    program: Sequence[str],
    *,
    module: str | None,
    image: str | None,
    name: str | None,
    nodes: int,
    procs_per_node: int | str,
    env: Mapping[str, str],
    namespace: str | None,
) -> Submission:
    """What to create for a program given on the command line.

    Raises:
        UsageProblem: something is missing or wrong.
    """
    script = None
    args = tuple(program)
    if module is None:
        if not args:
            raise UsageProblem("nothing to run", "pass a script (train.py), --module package.train, or -f job.yaml")
        script, args = script_of(args[0], read_bytes(Path(args[0]))), args[1:]
    if image is None:
        raise UsageProblem("--image is missing", "pass an image with Python 3 and torch, or set DDPJOB_IMAGE")
    chosen = name or name_for(module or (script.name if script is not None else ""), secrets.token_hex(_SUFFIX_BYTES))
    request = Request(chosen, image, script, module, args, nodes, procs_per_node, env, namespace)
    document = Document("the command line", job_manifest(request))
    return replace(submission_of([document]), script=script)


def starts_over(spec: DDPJobSpec) -> bool:
    """Whether a restart runs the program again from its start, as far as the spec says."""
    restart = spec.restart
    in_place = spec.rendezvous.backend in spec.launcher.traits.restarts_in_place
    return spec.checkpoint is None and (restart.max_restarts > 0 or (in_place and restart.max_process_restarts != 0))


def _on_cluster(
    submission: Submission,
    *,
    follow: bool,
    logs: bool,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    output: Format,
) -> None:
    cluster = connect(namespace, context, kubeconfig)
    job = submit(cluster, submission, namespace)
    say(f"created DDPJob {job.namespace}/{job.name}")
    if job.record.spec is not None and starts_over(job.record.spec):
        say("after a failure, the program runs again from its start: the job has no spec.checkpoint")
    if follow:
        # Standard output has only the JSON, so the log goes to standard error.
        code, job = follow_to_end(cluster, job, logs=console(stderr=output is Format.JSON) if logs else None)
    else:
        code = ExitCode.OK
    if output is Format.JSON:
        print_json(status_json(job))
    if code is not ExitCode.OK:
        raise typer.Exit(code)
