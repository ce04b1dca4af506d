"""The parts of Kubernetes' own Pod API that a DDPJob carries outside `template`, declared so that the API server checks them."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from ddpjob_core.api.base import ApiModel
from ddpjob_core.api.constants import RESERVED_ENV_NAMES, RESERVED_ENV_PREFIXES

Manifest: TypeAlias = dict[str, Any]
"""An object as the API server takes it."""

Quantity = Annotated[
    int | str,
    Field(
        json_schema_extra={
            "x-kubernetes-int-or-string": True,
            "maxLength": 64,
            "x-kubernetes-validations": [
                {
                    "rule": "type(self) == int ? self >= 0 : isQuantity(self) && !quantity(self).isLessThan(quantity('0'))",
                    "message": "must be a quantity that is not negative, such as 2, 500m or 16Gi",
                },
            ],
        },
    ),
]


class KeySelector(ApiModel):
    """Selects a key of a ConfigMap or a Secret in the job's namespace."""

    name: Annotated[str, Field(max_length=253)]
    """Name of the ConfigMap or Secret."""
    key: Annotated[str, Field(max_length=253)]
    """The key to select."""
    optional: bool | None = None
    """Whether the object or its key may be missing."""


class ObjectFieldSelector(ApiModel):
    """Selects a field of the pod."""

    api_version: Annotated[str | None, Field(max_length=64)] = None
    """Version of the schema the field path is written in, v1 when left out."""
    field_path: Annotated[str, Field(max_length=512)]
    """Path of the field, such as metadata.name or status.podIP."""


class ResourceFieldSelector(ApiModel):
    """Selects a resource of a container."""

    container_name: Annotated[str | None, Field(max_length=63)] = None
    """Name of the container, this one when left out."""
    resource: Annotated[str, Field(max_length=253)]
    """Resource to select, such as limits.cpu."""
    divisor: Quantity | None = None
    """Unit of the value, 1 when left out."""


class EnvVarSource(ApiModel):
    """Where the value of an environment variable comes from; exactly one of the fields."""

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
                    "message": "this name is set by the launcher (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_*, PET_*, "
                    "TORCHELASTIC_*, DDPJOB_* are reserved): remove it",
                    "messageExpression": "self.name + ' is set by the launcher (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_*, "
                    "PET_*, TORCHELASTIC_*, DDPJOB_* are reserved): remove it'",
                    "fieldPath": ".name",
                },
            ],
        },
    }

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the variable. Names that the launcher sets are refused: RANK, WORLD_SIZE, LOCAL_RANK and their kin, PET_*, MASTER_*, TORCHELASTIC_*, DDPJOB_*."""
    value: Annotated[str | None, Field(max_length=32768)] = None
    """Value; $(NAME) refers to an earlier variable."""
    value_from: EnvVarSource | None = None
    """Source of the value, instead of value."""


class EnvFromReference(ApiModel):
    """A ConfigMap or a Secret by name."""

    name: Annotated[str, Field(max_length=253)]
    """Name of the object."""
    optional: bool | None = None
    """Whether the object may be missing."""


class EnvFromSource(ApiModel):
    """All keys of a ConfigMap or a Secret as environment variables."""

    prefix: Annotated[str | None, Field(max_length=253)] = None
    """Put before each name."""
    config_map_ref: EnvFromReference | None = None
    """The ConfigMap."""
    secret_ref: EnvFromReference | None = None
    """The Secret."""


class ResourceRequirements(ApiModel):
    """CPU, memory, GPUs and other resources of the trainer container on each node."""

    limits: Annotated[dict[str, Quantity] | None, Field(max_length=32)] = None
    """The most that may be used. GPUs go here: nvidia.com/gpu: 8."""
    requests: Annotated[dict[str, Quantity] | None, Field(max_length=32)] = None
    """What the scheduler sets aside; the limits when left out."""


class VolumeMount(ApiModel):
    """A volume of `template` mounted into the trainer container."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of the volume in template.spec.volumes."""
    mount_path: Annotated[str, Field(min_length=1, max_length=1024)]
    """Where it appears in the container."""
    sub_path: Annotated[str | None, Field(max_length=1024)] = None
    """Folder inside the volume, its root when left out."""
    sub_path_expr: Annotated[str | None, Field(max_length=1024)] = None
    """Like subPath, with $(NAME) expanded from the environment."""
    read_only: bool | None = None
    """Whether it is mounted read-only."""
    recursive_read_only: Annotated[str | None, Field(max_length=32)] = None
    """Disabled, IfPossible or Enabled."""
    mount_propagation: Annotated[str | None, Field(max_length=32)] = None
    """How mounts travel between host and container."""


class ContainerPort(ApiModel):
    """A further port of the trainer container."""

    name: Annotated[str | None, Field(max_length=15)] = None
    """Name, unique in the pod. metrics-0, metrics-1, ... and rendezvous are taken."""
    container_port: Annotated[int, Field(ge=1, le=65535)]
    """Number of the port."""
    host_port: Annotated[int | None, Field(ge=1, le=65535)] = None
    """The same port on the node."""
    host_ip: Annotated[str | None, Field(alias="hostIP", max_length=64)] = None
    """Address of the node that hostPort binds to."""
    protocol: Literal["TCP", "UDP", "SCTP"] = "TCP"
    """Protocol."""


# Whatever the cluster's version of Pod knows: it is checked when the first pod is created.
SecurityContext = Annotated[
    dict[str, Any],
    Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}),
]
