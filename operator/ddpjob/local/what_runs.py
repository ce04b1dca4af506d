"""What a job without a cluster is about to run, for a user who has not written its manifest."""

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.api.text import one_line
from ddpjob_core.children.template import merge_trainer, trainer_of

_LONGEST_COMMAND: Final = 300
_LONGEST_PATH: Final = 200
_LONGEST_VALUE: Final = 200
"""Characters that are shown."""
_MOST_NAMES: Final = 40
_SHOW_ALL: Final = "`ddpjob run --local --dry-run` shows all of it"
_LOADS_CODE: Final = re.compile(
    r"(LD|DYLD|PYTHON|GCONV|OMPI_MCA|NCCL_.*PLUGIN|TORCH.*)(_.*|[A-Z0-9]*)|PATH|BASH_ENV|ENV|IFS|HOME|SHELL|NCCL_NET"
)
"""Names of variables by which a loader, an interpreter or a library is made to run other code than the command's."""


def what_runs(spec: DDPJobSpec, folder: Path, config_maps: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Lines that say which program, as whom, with which folders of the machine, and with which variables.

    Args:
        spec: of the job.
        folder: where it runs if it does not say.
        config_maps: data of the ConfigMaps of the same file, by name.
    """
    trainer = spec.trainer
    program = trainer.command or ["python", *(["-m", trainer.module] if trainer.module else [trainer.script or ""])]
    container = merge_trainer(trainer_of(spec.template), trainer)
    words = _cut(shlex.join([*program, *trainer.args]), _LONGEST_COMMAND)
    where = _cut(str(container.get("workingDir") or folder), _LONGEST_PATH)
    volumes = (spec.template.get("spec") or {}).get("volumes") or []
    paths = [str(each["hostPath"].get("path")) for each in volumes if isinstance(each.get("hostPath"), dict)]
    mounts = f"; of this machine it mounts {_cut(', '.join(paths), _LONGEST_PATH)}" if paths else ""
    yield f"it runs `{words}` in {where} as your own user, not in a container{mounts}"
    variables = dict(_variables(container, config_maps))
    if variables:
        names = sorted(variables)
        more = f" and {len(names) - _MOST_NAMES} more: {_SHOW_ALL}" if len(names) > _MOST_NAMES else ""
        listed = ", ".join(one_line(name, _LONGEST_PATH) for name in names[:_MOST_NAMES])
        yield f"it sets the variables {listed}{more}"
    for name, value in sorted(variables.items()):
        if _LOADS_CODE.fullmatch(name):
            yield f"! {name}={_cut(value, _LONGEST_VALUE)} can make it run other code than this command"


def _cut(text: str, most: int) -> str:
    shown = one_line(text, most)
    return f"{shown} (cut: {_SHOW_ALL})" if shown.endswith("…") else shown


def _variables(container: Mapping[str, Any], config_maps: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    """What the manifest sets, a later one in place of an earlier one."""
    for source in container.get("envFrom") or []:
        data = config_maps.get(str((source.get("configMapRef") or {}).get("name"))) or {}
        yield from ((f"{source.get('prefix') or ''}{name}", value) for name, value in data.items())
    for entry in container.get("env") or []:
        key = (entry.get("valueFrom") or {}).get("configMapKeyRef") or {}
        data = config_maps.get(str(key.get("name"))) or {}
        yield str(entry.get("name")), str(data.get(str(key.get("key")), entry.get("value") or ""))
