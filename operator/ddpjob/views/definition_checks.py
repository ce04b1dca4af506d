"""`ddpjob doctor --install`: whether the cluster's definition of DDPJobs is the one of this program."""

from collections.abc import Iterator, Sequence
from typing import Final

from ddpjob.views.checks import INSTALL_CRD, UPGRADE_PROGRAM, Check, Json, Outcome, lacking, unseen
from ddpjob_core.api.constants import GROUP, PLURAL, VERSION
from ddpjob_core.api.crd import custom_resource_definition
from ddpjob_core.api.errors import ApiError, Forbidden, NotFound

_NAMED: Final = 3
_WHOLE: Final = ("subresources", "selectableFields", "additionalPrinterColumns")
"""Parts of a version besides its schema, each compared as a whole."""
_NESTED: Final = ("properties", "items", "additionalProperties")
_OTHER: Final = f"{INSTALL_CRD}; if the cluster's is the newer one, upgrade this program instead"


def check_definition(stored: Json | ApiError, served: Json | ApiError, *, required: bool) -> Check:
    """Whether the definition is there, accepted, and the one of this program, field by field.

    Args:
        stored: the CustomResourceDefinition, which not every user may read.
        served: the answer of discovery.
        required: whether a lack of it is a failure.
    """
    name = "Definition"
    what = f"{PLURAL}.{GROUP}"
    if isinstance(stored, Forbidden) and not isinstance(served, ApiError):
        return Check(name, Outcome.WARN, f"{GROUP}/{VERSION} is served; {stored}", stored.remedy)
    if isinstance(stored, NotFound) or isinstance(served, NotFound):
        return lacking(name, f"the cluster has no definition of {what}", INSTALL_CRD, required=required)
    if isinstance(stored, ApiError):
        return unseen(name, stored)
    refused = _refused(stored)
    if refused:
        return Check(name, Outcome.FAIL, f"the API server does not accept {what}: {refused}", INSTALL_CRD)
    return _compared(name, dict(_parts(custom_resource_definition())), dict(_parts(stored)))


def _compared(name: str, ours: dict[str, Json], theirs: dict[str, Json]) -> Check:
    missing = [part for part in ours if part not in theirs]
    further = [part for part in theirs if part not in ours]
    if missing:
        said = f"the definition is older than this program: it lacks {_listed(missing)}"
        return Check(name, Outcome.FAIL, said, INSTALL_CRD if not further else _OTHER)
    if further:
        said = f"the definition is newer than this program, which does not know {_listed(further)}"
        return Check(name, Outcome.WARN, said, f"upgrade this program: {UPGRADE_PROGRAM}")
    different = [part for part in ours if ours[part] != theirs[part]]
    if different:
        said = f"the definition has other rules than this program's: {_listed(different)}"
        return Check(name, Outcome.FAIL, said, _OTHER)
    return Check(name, Outcome.OK, f"{GROUP}/{VERSION} is this program's, field by field")


def _refused(stored: Json) -> str:
    conditions = {each.get("type"): each for each in (stored.get("status") or {}).get("conditions") or []}
    for kind in ("NamesAccepted", "Established"):
        condition = conditions.get(kind)
        if condition is None or condition.get("status") != "True":
            return str((condition or {}).get("message") or f"it is not {kind} yet")
    return ""


def _parts(definition: Json) -> Iterator[tuple[str, Json]]:
    """The fields of this version by their paths, each with what is required of it, and the parts besides the schema."""
    for version in (definition.get("spec") or {}).get("versions") or []:
        if version.get("name") == VERSION:
            yield from ((part, {"": version[part]}) for part in _WHOLE if version.get(part))
            yield from _fields("", (version.get("schema") or {}).get("openAPIV3Schema") or {})


def _fields(path: str, schema: Json) -> Iterator[tuple[str, Json]]:
    # A description is text for people.
    yield path, {key: value for key, value in schema.items() if key not in (*_NESTED, "description")}
    for name, field in (schema.get("properties") or {}).items():
        yield from _fields(f"{path}.{name}" if path else name, field)
    for key, mark in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(schema.get(key), dict):
            yield from _fields(f"{path}{mark}", schema[key])


def _listed(parts: Sequence[str]) -> str:
    """The shortest paths, without what is inside of them, the rest as a number."""
    outer = [part for part in parts if not any(part.startswith((f"{other}.", f"{other}[")) for other in parts if other)]
    named = [part or "the rules of the whole job" for part in outer]
    if len(named) <= _NAMED + 1:
        return ", ".join(named)
    return f"{', '.join(named[:_NAMED])} and {len(named) - _NAMED} more"
