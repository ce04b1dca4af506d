"""A job made from a script, which is stored in a ConfigMap that the job owns. Pure functions."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ddpjob_core.api.constants import API_VERSION, KIND, MAX_NAME_LENGTH, MAX_PROCESSES, is_reserved_env
from ddpjob_core.api.errors import UsageProblem
from ddpjob_core.api.ownership import Owner, child_metadata

FOLDER: Final = "/ddpjob-program"
VOLUME: Final = "ddpjob-program"
LARGEST_BYTES: Final = 1_000_000
"""A little less than a ConfigMap can hold."""
_SUFFIX: Final = "-program"
_ENV_NAME: Final = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


@dataclass(frozen=True, slots=True)
class Script:
    """A program in one file: its name without a folder, and its text."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Request:
    """What to run, and how: a script that is submitted with the job, or a module of the image."""

    name: str
    image: str
    script: Script | None = None
    module: str | None = None
    args: tuple[str, ...] = ()
    nodes: int = 1
    procs_per_node: int | str = "auto"
    env: Mapping[str, str] | None = None
    namespace: str | None = None


def job_manifest(request: Request) -> dict[str, Any]:
    """The DDPJob.

    Raises:
        UsageProblem: it names neither a script nor a module, or both, or a variable with an invalid name.
    """
    if (request.script is None) == (request.module is None):
        raise UsageProblem("pass either a script (train.py) or a module (package.train)")
    _check_env(request.env or (), "env")
    trainer: dict[str, Any] = {"image": request.image}
    if request.script is not None:
        trainer["script"] = f"{FOLDER}/{request.script.name}"
    else:
        trainer["module"] = request.module
    if request.args:
        trainer["args"] = list(request.args)
    if request.env:
        trainer["env"] = [{"name": name, "value": value} for name, value in request.env.items()]
    spec: dict[str, Any] = {"nodes": request.nodes, "procsPerNode": request.procs_per_node, "trainer": trainer}
    if request.script is not None:
        trainer["volumeMounts"] = [{"name": VOLUME, "mountPath": FOLDER, "readOnly": True}]
        volume = {"name": VOLUME, "configMap": {"name": config_map_name(request.name)}}
        spec["template"] = {"spec": {"volumes": [volume]}}
    metadata = {"name": request.name, **({"namespace": request.namespace} if request.namespace else {})}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def config_map(script: Script, job: str, namespace: str | None, owner: Owner | None) -> dict[str, Any]:
    """The ConfigMap that carries the script.

    Args:
        script: the program.
        job: name of the job.
        namespace: None to leave it out.
        owner: the job, if it exists; the ConfigMap is deleted with it.
    """
    if owner is not None:
        metadata = child_metadata(owner, config_map_name(job))
    else:
        metadata = {"name": config_map_name(job), **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        # The kubelets need not watch it, and what runs cannot be changed.
        "immutable": True,
        "data": {script.name: script.text},
    }


def config_map_name(job: str) -> str:
    """Name of the ConfigMap that carries a job's script."""
    return f"{job}{_SUFFIX}"


def name_for(program: str, suffix: str) -> str:
    """A name for a job without one: the name of its program, and a suffix that distinguishes it from the next run.

    Args:
        program: such as train.py or package.train.
        suffix: lower case letters and digits.
    """
    return job_label(stem_of(program), f"-{suffix}")


def stem_of(program: str) -> str:
    """The name of a program without its folder or package: train of /some/where/train.py and of package.train."""
    return program.rsplit("/", 1)[-1].removesuffix(".py").rsplit(".", 1)[-1]


def job_label(text: str, suffix: str = "") -> str:
    """A valid name for a job, made from the name of a program or of another scheduler's job.

    Args:
        text: such as My_Job.
        suffix: what the name ends with.
    """
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if not plain or not plain[0].isalpha():
        plain = f"job-{plain}".strip("-")
    return f"{plain[: MAX_NAME_LENGTH - len(suffix)].rstrip('-')}{suffix}"


def script_of(name: str, content: bytes) -> Script:
    """A script from a file's content.

    Raises:
        UsageProblem: it does not fit into a ConfigMap.
    """
    base = name.rsplit("/", 1)[-1]
    if len(content) > LARGEST_BYTES:
        raise UsageProblem(
            f"{name} has {len(content):,} bytes; a ConfigMap can hold {LARGEST_BYTES:,}",
            "put it into the image and run it with --module, or from a volume with -f job.yaml",
        )
    if not re.fullmatch(r"[-._a-zA-Z0-9]+", base):
        raise UsageProblem(f"{base!r} cannot be the name of a file in a ConfigMap", "rename it: letters, digits, - . _")
    try:
        return Script(base, content.decode())
    except UnicodeDecodeError as error:
        raise UsageProblem(f"{name} is not text: {error.reason} at byte {error.start}") from error


def parse_env(given: Sequence[str]) -> dict[str, str]:
    """Environment variables given as NAME=VALUE.

    Raises:
        UsageProblem: one has another form, or its name is reserved for the launcher.
    """
    found: dict[str, str] = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals:
            raise UsageProblem(f"--env {item}: must be NAME=VALUE")
        _check_env([name], "--env")
        found[name] = value
    return found


def _check_env(names: Iterable[object], option: str) -> None:
    for name in names:
        if not isinstance(name, str) or not _ENV_NAME.fullmatch(name):
            raise UsageProblem(
                f"{option}: {name!r} cannot be the name of a variable",
                "use letters, digits, - . _, not starting with a digit",
            )
        if is_reserved_env(name):
            raise UsageProblem(f"{option}: the launcher sets {name}", "leave it out, or choose another name")


def parse_processes(text: str) -> int | str:
    """spec.procsPerNode from an option: a number or auto.

    Raises:
        UsageProblem: it is neither of the two.
    """
    if text == "auto":
        return text
    if re.fullmatch(r"[0-9]{1,9}", text) and 1 <= int(text) <= MAX_PROCESSES:
        return int(text)
    raise UsageProblem(f"--procs-per-node {text}: must be a number from 1 to {MAX_PROCESSES}, or auto")
