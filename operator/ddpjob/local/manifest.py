"""A file with a DDPJob, checked as far as an API server would check it, with the ConfigMaps that it brings along."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml
from pydantic import ValidationError

from ddpjob.api.constants import API_VERSION, KIND, MAX_NAME_LENGTH
from ddpjob.api.spec import DDPJobSpec, RendezvousBackend
from ddpjob.children.template import template_errors
from ddpjob.crd import structural_schema
from ddpjob.local.errors import LocalError

_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class LocalManifest:
    """A DDPJob as it was given, and the data of the ConfigMaps beside it, by name."""

    job: dict[str, Any]
    spec: DDPJobSpec
    config_maps: Mapping[str, Mapping[str, str]]

    @property
    def name(self) -> str:
        """The job's name."""
        return str(self.job["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """The job's namespace."""
        return str(self.job["metadata"]["namespace"])


def read_manifest(text: str, source: str, *, namespace: str = "default") -> LocalManifest:
    """The one DDPJob in a text of YAML documents.

    Args:
        text: the file's content.
        source: the file's name, for messages.
        namespace: where a job belongs that names none.

    Raises:
        LocalError: the text is no YAML, has not exactly one DDPJob, or the job would be refused.
    """
    documents = list(_documents(text, source))
    jobs = [document for document in documents if document.get("kind") == KIND]
    if len(jobs) != 1:
        raise LocalError(f"{source}: has {len(jobs)} objects of the kind {KIND}: one is what can run without a cluster")
    job = dict(jobs[0])
    if job.get("apiVersion") != API_VERSION:
        raise LocalError(f"{source}: apiVersion: {job.get('apiVersion')!r} should be {API_VERSION}")
    metadata = job.get("metadata") if isinstance(job.get("metadata"), dict) else {}
    name = str((metadata or {}).get("name") or "")
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME_LENGTH:
        raise LocalError(
            f"{source}: metadata.name: {name!r} should be lower case letters, digits and dashes, begin with a letter "
            f"and have at most {MAX_NAME_LENGTH} characters"
        )
    job["metadata"] = {"namespace": namespace, **(metadata or {}), "generation": 1}
    raw = job.get("spec")
    unknown = next(_unknown(raw, structural_schema(DDPJobSpec, defaults=False), "spec"), None)
    if unknown is not None:
        raise LocalError(f"{source}: {unknown}: there is no such field")
    return LocalManifest(job, _spec(raw, source), dict(_config_maps(documents)))


def _documents(text: str, source: str) -> Iterator[dict[str, Any]]:
    try:
        for document in yaml.safe_load_all(text):
            if isinstance(document, dict):
                yield document
            elif document is not None:
                raise LocalError(f"{source}: is no Kubernetes object but {type(document).__name__}")
    except yaml.YAMLError as error:
        raise LocalError(f"{source}: is no YAML: {error}") from error


def _config_maps(documents: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, str]]]:
    for document in documents:
        if document.get("kind") == "ConfigMap":
            data = document.get("data") or {}
            yield str((document.get("metadata") or {}).get("name")), {key: str(value) for key, value in data.items()}


def _spec(raw: object, source: str) -> DDPJobSpec:
    try:
        spec = DDPJobSpec.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(("spec", *(str(part) for part in first["loc"])))
        raise LocalError(f"{source}: {where}: {first['msg']}") from error
    problem = next(_problems(spec), None)
    if problem is not None:
        raise LocalError(f"{source}: {problem}")
    return spec


def _problems(spec: DDPJobSpec) -> Iterator[str]:
    """What the rules of the CustomResourceDefinition refuse beyond types and ranges."""
    trainer = spec.trainer
    if sum(given is not None for given in (trainer.script, trainer.module, trainer.command)) != 1:
        yield "spec.trainer: give exactly one of script (train.py), module (package.train) or command"
    processes = spec.procs_per_node
    if (isinstance(processes, str) and processes != "auto") or (isinstance(processes, int) and not processes):
        yield f"spec.procsPerNode: {processes!r} should be a number from 1 to 256, or auto"
    if spec.rendezvous.backend is RendezvousBackend.STATIC and spec.restart.max_process_restarts:
        yield "spec.restart.maxProcessRestarts: the static rendezvous cannot restart processes: remove it, or use c10d"
    yield from template_errors(spec.template)


def _unknown(value: object, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """Paths of fields that the schema does not have, which an API server would warn of or refuse."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown(item, schema.get("items") or {}, f"{path}[{index}]")
    elif isinstance(value, dict) and "properties" in schema:
        for name, item in value.items():
            if name not in schema["properties"]:
                yield f"{path}.{name}"
            else:
                yield from _unknown(item, schema["properties"][name], f"{path}.{name}")
