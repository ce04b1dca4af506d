"""What takes the place of the commands that stand around a launch line in job scripts."""

import re
from collections.abc import Mapping
from typing import Final

# fmt: off
QUIET: Final = frozenset({
    ":", "[", "[[", "test", "true", "false", "echo", "printf", "date", "hostname", "uname", "whoami", "id", "pwd",
    "set", "shopt", "trap", "wait", "sleep", "exit", "return", "break", "continue", "nvidia-smi", "free", "lscpu",
    "nproc", "uptime", "squeue", "sacct", "qstat", "read", "let", "declare", "typeset", "local", "readonly", "ls",
    "tee", "head", "tail", "cat", "grep", "awk", "sed", "sort", "uniq", "wc", "tr", "cut", "xargs", "type", "which",
    "command", "jobs", "shift", "getopts", "exec",
})
# fmt: on
"""They change nothing that a training sees."""

_IMAGE: Final = "not carried over: what it brings belongs into the image of --image"
_FILES: Final = "not carried over: an init container of spec.template, or the image, prepares files"
_NODES: Final = "not needed: every node is a pod that starts by itself"

_TOLD: Final[Mapping[str, str]] = {
    "module": _IMAGE,
    "ml": _IMAGE,
    "conda": _IMAGE,
    "mamba": _IMAGE,
    "micromamba": _IMAGE,
    "pip": _IMAGE,
    "pip3": _IMAGE,
    "uv": _IMAGE,
    "spack": _IMAGE,
    "apt": _IMAGE,
    "apt-get": _IMAGE,
    "virtualenv": _IMAGE,
    "eval": "not carried over: nothing is run here; what it sets belongs into the image or spec.trainer.env",
    "cd": "not carried over: spec.trainer.workingDir, where the image or a volume has the program",
    "pushd": "not carried over: spec.trainer.workingDir, where the image or a volume has the program",
    "ulimit": "not carried over: limits of processes are set by the container runtime of the nodes",
    "umask": "not carried over: spec.trainer.securityContext, or the program, sets it",
    "mkdir": _FILES,
    "cp": _FILES,
    "mv": _FILES,
    "rm": _FILES,
    "ln": _FILES,
    "tar": _FILES,
    "unzip": _FILES,
    "rsync": _FILES,
    "wget": _FILES,
    "curl": _FILES,
    "git": _FILES,
    "ssh": _NODES,
    "pbsdsh": _NODES,
    "srun": _NODES,
    "qsub": "not carried over: it submits another job: convert that job's script",
    "sbatch": "not carried over: it submits another job: convert that job's script",
    "nvidia-cuda-mps-control": "not carried over: the cluster's device plugin shares GPUs",
}
_ACTIVATE: Final = re.compile(r"(?:.*/)?activate(?:\.\w+)?")
ANOTHER: Final = (
    "not carried over: it runs beside the training: the program itself, an init container or the image does it"
)


def place_of(name: str, first_argument: str) -> str:
    """What takes the place of a command; empty where there is nothing to tell.

    Args:
        name: of the command.
        first_argument: the word behind it.
    """
    base = name.rsplit("/", 1)[-1]
    if base in (".", "source"):
        if _ACTIVATE.fullmatch(first_argument):
            return "not carried over: the image's own Python takes the place of this environment"
        return "not carried over: what that file sets belongs into the image or spec.trainer.env"
    if base in QUIET:
        return ""
    return _TOLD.get(base, ANOTHER)


# What names a launcher of its own: its processes are started by something that no DDPJob starts.
OTHER_LAUNCHERS: Final = frozenset(
    {"accelerate", "deepspeed", "horovodrun", "colossalai", "composer", "ray", "tune", "fabric", "lightning"}
)
WRAPPERS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("singularity", "apptainer", "docker", "podman", "enroot", "shifter"), "the image of --image"),
    **dict.fromkeys(("numactl", "taskset", "nice", "ionice", "stdbuf", "setsid", "chrt"), "the pod's own resources"),
    **dict.fromkeys(("nsys", "ncu", "strace", "gdb", "valgrind"), "nothing: start it inside the program"),
    **dict.fromkeys(("conda", "mamba", "micromamba", "uv", "poetry", "pipenv", "pixi"), "the image's own Python"),
    "timeout": "spec.activeDeadlineSeconds",
    "pbsdsh": "the job, which starts every node",
    "ibrun": "the job, which starts every node",
    "aprun": "the job, which starts every node",
    "jsrun": "the job, which starts every node",
    "sudo": "spec.trainer.securityContext",
}
"""Commands before a launcher, and what takes their place."""
TRANSPARENT: Final = frozenset({"exec", "nohup", "time", "command", "builtin"})
SHELLS: Final = frozenset({"bash", "sh", "zsh", "dash", "ksh"})
