"""What replaces the commands around a launch line in a job script."""

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
"""Commands that change nothing that the training sees."""

_IMAGE: Final = "not carried over: what it provides belongs in the image (--image)"
_FILES: Final = "not carried over: prepare files in the image or in an init container of spec.template"
_NODES: Final = "not needed: the job starts every node"

_NOTES: Final[Mapping[str, str]] = {
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
    "eval": "not carried over: it is not evaluated; what it sets belongs in the image or in spec.trainer.env",
    "cd": "not carried over: set spec.trainer.workingDir to the program's directory in the image or on a volume",
    "pushd": "not carried over: set spec.trainer.workingDir to the program's directory in the image or on a volume",
    "ulimit": "not carried over: the container runtime of the nodes sets process limits",
    "umask": "not carried over: set it in the program",
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
    "qsub": "not carried over: it submits another job; convert that job's script as well",
    "sbatch": "not carried over: it submits another job; convert that job's script as well",
    "nvidia-cuda-mps-control": "not carried over: the cluster's device plugin shares GPUs",
}
_ACTIVATE: Final = re.compile(r"(?:.*/)?activate(?:\.\w+)?")
ANOTHER: Final = "not carried over: do this in the program, in an init container or in the image"


def place_of(name: str, first_argument: str) -> str:
    """What replaces a command; empty if there is nothing to say.

    Args:
        name: of the command.
        first_argument: the word after it.
    """
    base = name.rsplit("/", 1)[-1]
    if base in (".", "source"):
        if _ACTIVATE.fullmatch(first_argument):
            return "not carried over: the image's own Python replaces this environment"
        return "not carried over: what that file sets belongs in the image or in spec.trainer.env"
    if base in QUIET:
        return ""
    return _NOTES.get(base, ANOTHER)


# Launchers that no DDPJob starts.
OTHER_LAUNCHERS: Final = frozenset(
    {"accelerate", "deepspeed", "horovodrun", "colossalai", "composer", "ray", "tune", "fabric", "lightning"}
)
WRAPPERS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("singularity", "apptainer", "docker", "podman", "enroot", "shifter"), "the image (--image) replaces it"
    ),
    **dict.fromkeys(
        ("numactl", "taskset", "nice", "ionice", "stdbuf", "setsid", "chrt"), "the resources of the pod replace it"
    ),
    **dict.fromkeys(("nsys", "ncu", "strace", "gdb", "valgrind"), "start it inside the program"),
    **dict.fromkeys(
        ("conda", "mamba", "micromamba", "uv", "poetry", "pipenv", "pixi"), "the image's own Python replaces it"
    ),
    "timeout": "spec.activeDeadlineSeconds replaces it",
    "pbsdsh": "the job starts every node",
    "ibrun": "the job starts every node",
    "aprun": "the job starts every node",
    "jsrun": "the job starts every node",
    "sudo": "spec.trainer.securityContext replaces it",
}
"""Commands that wrap a launcher, and what to do instead."""
TRANSPARENT: Final = frozenset({"exec", "nohup", "time", "command", "builtin"})
SHELLS: Final = frozenset({"bash", "sh", "zsh", "dash", "ksh"})
