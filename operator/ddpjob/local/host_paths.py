"""The folders and files of this machine that a job without a cluster may have: those that the user names."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ddpjob.local.errors import LocalError
from ddpjob_core.api.text import one_line

OPTION: Final = "--allow-host-path"
_LONGEST: Final = 200
"""Characters of a path that are shown."""


def check_host_paths(template: Mapping[str, Any], allowed: Sequence[Path]) -> None:
    """Refuse each hostPath that the user has not named: a manifest may be a stranger's.

    Args:
        template: of the pods.
        allowed: what the user has named; each allows itself and all that is below it.

    Raises:
        LocalError: the manifest has another one; the message names it, and what allows it.
    """
    # Where a link leads is what counts.
    roots = [path.resolve() for path in allowed]
    for volume in (template.get("spec") or {}).get("volumes") or []:
        source = volume.get("hostPath")
        if source is None:
            continue
        path = str(source.get("path") or "") if isinstance(source, Mapping) else ""
        where = f"spec.template.spec.volumes: {volume.get('name')}"
        if not path:
            raise LocalError(f"{where} has no hostPath.path: name a folder or file of this machine")
        if not any(Path(path).resolve().is_relative_to(root) for root in roots):
            shown = one_line(path, _LONGEST)
            raise LocalError(
                f"{where} is {shown} of this machine itself, which this job could read and change: to let it, run it "
                f"with {OPTION} {shlex.quote(shown)}; else use an emptyDir or a persistentVolumeClaim"
            )
