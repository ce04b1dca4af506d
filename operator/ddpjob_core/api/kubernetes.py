"""The parts of the Kubernetes Pod API that a DDPJob has outside `template`, declared so that the API server validates them."""

import re
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

from pydantic import BeforeValidator, Field

from ddpjob_core.api.base import ApiModel
from ddpjob_core.api.constants import RESERVED_ENV_NAMES, RESERVED_ENV_PREFIXES

Manifest: TypeAlias = dict[str, Any]
"""An object as the API server takes it."""


_UNKNOWN_ENDS: Final = ("ConfigMap", "Secret")
"""Kinds whose objects have names that nobody can know before they exist."""


class ObjectName(NamedTuple):
    """Kind and name of an object of the job's namespace."""

    kind: str
    name: str

    def __str__(self) -> str:
        """As a sentence names it, such as `pod digits-a0-1`; without the end that nobody may know (`without_end`)."""
        return f"{self.kind.lower()} {self._shown}"

    def without_end(self, text: str) -> str:
        """A text about the object, for people, without the end of its name where that is to be known to nobody.

        What the API server refuses stands in the job's status, and those who could read such a name there could create
        an object of that name before the operator's next try.
        """
        return text.replace(self.name, self._shown)

    @property
    def _shown(self) -> str:
        begin, found, _ = self.name.rpartition("-")
        return f"{begin}-…" if found and self.kind in _UNKNOWN_ENDS else self.name


def object_name(manifest: Manifest) -> ObjectName:
    """Kind and name of a manifest's object."""
    return ObjectName(manifest["kind"], manifest["metadata"]["name"])


_QUANTITY: Final = r"^\+?([0-9]+\.?[0-9]*|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,3})?$"
_LARGEST_NUMBER: Final = 10**18
_LONGEST_QUANTITY: Final = 64


def _check_quantity(value: object) -> object:
    """Refuse what the API server refuses."""
    if isinstance(value, str):
        valid = len(value) <= _LONGEST_QUANTITY and re.fullmatch(_QUANTITY, value) is not None
    else:
        valid = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _LARGEST_NUMBER
    if not valid:
        raise ValueError("must be a non-negative quantity, such as 2, 0.5, 500m or 16Gi")
    return value


Quantity = Annotated[
    int | float | str,
    BeforeValidator(_check_quantity),
    Field(
        json_schema_extra={
            # A Pod takes a number with a fraction too. No type of a structural schema does, and CEL sees only types.
            "x-kubernetes-preserve-unknown-fields": True,
            "minimum": 0,
            "maximum": _LARGEST_NUMBER,
            "maxLength": _LONGEST_QUANTITY,
            "pattern": _QUANTITY,
            # No list and no object is both at once.
            "minItems": 1,
            "maxItems": 0,
            "minProperties": 1,
            "maxProperties": 0,
            "not": {"enum": [True, False]},
        },
    ),
]
"""An amount of a resource, as in a container."""

Size = Annotated[
    int | str,
    Field(
        json_schema_extra={
            "x-kubernetes-int-or-string": True,
            "maxLength": 64,
            "x-kubernetes-validations": [
                {
                    "rule": "type(self) == int ? self >= 0 : isQuantity(self) && !quantity(self).isLessThan(quantity('0'))",
                    "message": "must be a non-negative quantity, such as 500Mi or 16Gi",
                },
            ],
        },
    ),
]
"""An amount of storage, in bytes if it is a number."""


class KeySelector(ApiModel):
    """Selects a key of a ConfigMap or a Secret in the job's namespace."""

    name: Annotated[str, Field(max_length=253)]
    """Name of the ConfigMap or Secret."""
    key: Annotated[str, Field(max_length=253)]
    """The key to select."""
    optional: bool | None = None
    """Whether the object or its key may be missing. Defaults to false."""


class ObjectFieldSelector(ApiModel):
    """Selects a field of the pod."""

    api_version: Annotated[str | None, Field(max_length=64)] = None
    """Version of the schema that the field path is written in terms of. Defaults to v1."""
    field_path: Annotated[str, Field(max_length=512)]
    """Path of the field, such as metadata.name or status.podIP."""


class ResourceFieldSelector(ApiModel):
    """Selects a resource of a container."""

    container_name: Annotated[str | None, Field(max_length=63)] = None
    """Name of the container. Defaults to the trainer container."""
    resource: Annotated[str, Field(max_length=253)]
    """Resource to select, such as limits.cpu."""
    divisor: Quantity | None = None
    """Unit of the value. Defaults to 1."""


class EnvVarSource(ApiModel):
    """Source of the value of an environment variable. Set exactly one of the fields."""

    config_map_key_ref: KeySelector | None = None
    """A key of a ConfigMap."""
    secret_key_ref: KeySelector | None = None
    """A key of a Secret."""
    field_ref: ObjectFieldSelector | None = None
    """A field of the pod."""
    resource_field_ref: ResourceFieldSelector | None = None
    """A resource of a container."""


_RESERVED_NAMES = "[" + ", ".join(f"'{name}'" for name in RESERVED_ENV_NAMES) + "]"
_RESERVED_PREFIX = " || ".join(f"self.name.startsWith('{prefix}')" for prefix in RESERVED_ENV_PREFIXES)


class EnvVar(ApiModel):
    """An environment variable of the trainer container."""

    model_config = {
        "json_schema_extra": {
            "x-kubernetes-validations": [
                {
                    "rule": f"!(self.name in {_RESERVED_NAMES} || {_RESERVED_PREFIX})",
                    "message": "this variable is set by the launcher (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_*, PET_*, "
                    "TORCHELASTIC_*, DDPJOB_* are reserved): remove it",
                    "messageExpression": "self.name + ' is set by the launcher (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_*, "
                    "PET_*, TORCHELASTIC_*, DDPJOB_* are reserved): remove it'",
                    "fieldPath": ".name",
                },
            ],
        },
    }

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the variable. Names that the launcher sets are rejected: RANK, WORLD_SIZE, the other *_RANK, *_WORLD_SIZE and ROLE_* variables of torchrun, PET_*, MASTER_*, TORCHELASTIC_*, DDPJOB_*."""
    value: Annotated[str | None, Field(max_length=32768)] = None
    """Value of the variable. $(NAME) is replaced by the value of a variable defined earlier."""
    value_from: EnvVarSource | None = None
    """Source of the value. Cannot be set together with value."""


class EnvFromReference(ApiModel):
    """Reference to a ConfigMap or a Secret by name."""

    name: Annotated[str, Field(max_length=253)]
    """Name of the ConfigMap or Secret."""
    optional: bool | None = None
    """Whether the object may be missing. Defaults to false."""


class EnvFromSource(ApiModel):
    """ConfigMap or Secret whose keys are all set as environment variables."""

    prefix: Annotated[str | None, Field(max_length=253)] = None
    """Prefix for the name of each variable."""
    config_map_ref: EnvFromReference | None = None
    """ConfigMap to read from."""
    secret_ref: EnvFromReference | None = None
    """Secret to read from."""


class ResourceRequirements(ApiModel):
    """CPU, memory, GPUs and other resources of the trainer container on each node."""

    limits: Annotated[dict[str, Quantity] | None, Field(max_length=32)] = None
    """Maximum amount of each resource that the container may use. GPUs go here, for example nvidia.com/gpu: 8."""
    requests: Annotated[dict[str, Quantity] | None, Field(max_length=32)] = None
    """Amount of each resource that the scheduler reserves. Defaults to limits, if they are set."""


class VolumeMount(ApiModel):
    """Volume from `template` to mount into the trainer container."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of the volume in template.spec.volumes."""
    mount_path: Annotated[str, Field(min_length=1, max_length=1024)]
    """Path in the container at which the volume is mounted."""
    sub_path: Annotated[str | None, Field(max_length=1024)] = None
    """Path inside the volume to mount. Defaults to the root of the volume."""
    sub_path_expr: Annotated[str | None, Field(max_length=1024)] = None
    """Like subPath, but $(NAME) is expanded from the environment of the container."""
    read_only: bool | None = None
    """Whether the volume is mounted read-only. Defaults to false."""
    recursive_read_only: Annotated[str | None, Field(max_length=32)] = None
    """Whether a read-only mount is also read-only for mounts below it: Disabled, IfPossible or Enabled. Defaults to Disabled."""
    mount_propagation: Annotated[str | None, Field(max_length=32)] = None
    """How mounts propagate between host and container: None, HostToContainer or Bidirectional. Defaults to None."""


class ContainerPort(ApiModel):
    """Additional port of the trainer container."""

    name: Annotated[str | None, Field(max_length=15)] = None
    """Name of the port, unique in the pod. The names metrics-0, metrics-1, ... and rendezvous are used by the operator."""
    container_port: Annotated[int, Field(ge=1, le=65535)]
    """Port number in the container."""
    host_port: Annotated[int | None, Field(ge=1, le=65535)] = None
    """Port number to expose on the Kubernetes node."""
    host_ip: Annotated[str | None, Field(alias="hostIP", max_length=64)] = None
    """Host IP address that hostPort is bound to."""
    protocol: Literal["TCP", "UDP", "SCTP"] = "TCP"
    """Protocol of the port: TCP, UDP or SCTP."""


# Any field that Pod has in the cluster's version: it is validated when the first pod is created.
SecurityContext = Annotated[
    dict[str, Any],
    Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}),
]
