"""Manifests as written: YAML with the line of every field, checked without a cluster."""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ddpjob.manifests.names import NAMESPACE_RULE, is_job_name
from ddpjob_core.api.constants import API_VERSION, KIND, MAX_PROCESSES, MAX_RANKS, is_reserved_env
from ddpjob_core.api.crd import NAME_RULE, Schema, custom_resource_definition
from ddpjob_core.api.errors import UsageProblem
from ddpjob_core.api.extent import excess
from ddpjob_core.api.names import is_namespace
from ddpjob_core.api.restart import NO_CONDITION, RULE_CONDITIONS
from ddpjob_core.api.spec import DDPJobSpec
from ddpjob_core.api.template import template_problems

Json: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str | int, ...]

_PROGRAMS: Final = ("script", "module", "command")
_TAG: Final = "tag:yaml.org,2002:"
_JSON_TYPES: Final = ("null", "bool", "int", "float", "str", "seq", "map")
_KEEPS_UNKNOWN: Final = "x-kubernetes-preserve-unknown-fields"


class _Loader(yaml.SafeLoader):
    """YAML with the types of JSON, as Kubernetes reads it: a date is a string."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != f"{_TAG}timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.yaml_constructors = {
    tag: constructor
    for tag, constructor in yaml.SafeLoader.yaml_constructors.items()
    if tag is None or tag.removeprefix(_TAG) in _JSON_TYPES
}


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a file; `lines` has the line of each field."""

    file: str
    content: Json
    lines: Mapping[Path, int] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Its kind."""
        return str(self.content.get("kind") or "")

    @property
    def name(self) -> str:
        """metadata.name."""
        return str(_object(self.content.get("metadata")).get("name") or "")

    @property
    def is_job(self) -> bool:
        """Whether it is a DDPJob of this version."""
        return self.kind == KIND and self.content.get("apiVersion") == API_VERSION

    def place(self, path: Path) -> str:
        """File and line of a field, or of the nearest enclosing field that exists."""
        for length in range(len(path), -1, -1):
            line = self.lines.get(path[:length])
            if line is not None:
                return f"{self.file}:{line}"
        return self.file


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong in a manifest: where, which field, and what."""

    place: str
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.field}: {self.message}" if self.field else f"{self.place}: {self.message}"


def read_documents(text: str, file: str) -> list[Document]:
    """The objects in a YAML text.

    Args:
        text: of the file.
        file: its name, for messages.

    Raises:
        UsageProblem: it is not YAML with the types of JSON, or contains something that is not a Kubernetes object.
    """
    try:
        nodes = [node for node in yaml.compose_all(text, Loader=_Loader) if node is not None]
        # The loader constructs only the types of JSON.
        contents = [content for content in yaml.load_all(text, Loader=_Loader) if content is not None]
        documents = [
            Document(file, content, dict(_lines(node, ())))
            for node, content in zip((n for n in nodes if not _is_null(n)), contents, strict=True)
            if isinstance(content, dict)
        ]
    except yaml.YAMLError as error:
        raise UsageProblem(f"{_yaml_place(file, error)}: not valid YAML: {_yaml_problem(error)}") from error
    except RecursionError as error:
        raise UsageProblem(f"{file}: not valid YAML: it refers to itself or is nested too deeply") from error
    except (ValueError, KeyError) as error:
        # A value that does not fit its tag.
        raise UsageProblem(f"{file}: not valid YAML: {error}") from error
    if len(documents) != len(contents) or not all(d.kind and d.content.get("apiVersion") for d in documents):
        raise UsageProblem(
            f"{file}: not a Kubernetes manifest: every object must have apiVersion and kind",
            "manifests/examples/digits.yaml is the smallest useful example",
        )
    if not documents:
        raise UsageProblem(f"{file}: the file is empty")
    for document in documents:
        if not isinstance(document.content.get("metadata"), dict):
            raise UsageProblem(
                f"{document.place(('metadata',))}: metadata: must be an object", "give it at least a name"
            )
    return documents


def checked_job(documents: Sequence[Document]) -> Document:
    """The one DDPJob among the objects of a file, checked as far as possible without a cluster.

    Raises:
        UsageProblem: there is not exactly one, or it has problems; the message lists all of them.
    """
    job = only_job(documents)
    problems = check_job(job)
    if problems:
        raise UsageProblem(
            "\n".join(map(str, problems)),
            "kubectl explain ddpjob.spec and docs/api-reference.md describe every field",
        )
    return job


def only_job(documents: Sequence[Document]) -> Document:
    """The one DDPJob among the objects of a file.

    Raises:
        UsageProblem: there is none, more than one, or one of another version.
    """
    jobs = [document for document in documents if document.kind == KIND]
    if len(jobs) != 1:
        found = "none" if not jobs else ", ".join(job.name or "one without a name" for job in jobs)
        raise UsageProblem(f"{documents[0].file}: exactly one {KIND} is expected, found {found}")
    if not jobs[0].is_job:
        raise UsageProblem(
            f"{jobs[0].place(('apiVersion',))}: apiVersion: must be {API_VERSION}, "
            f"not {jobs[0].content.get('apiVersion')}"
        )
    return jobs[0]


def named_namespace(documents: Sequence[Document], asked: str | None) -> str | None:
    """The namespace for the objects of a file, None if neither its DDPJob nor the user names one.

    Args:
        documents: of the file.
        asked: by -n.

    Raises:
        UsageProblem: an object is in a namespace other than the one asked for.
    """
    named = None
    for document in documents:
        own = _object(document.content.get("metadata")).get("namespace")
        if asked is not None and own is not None and own != asked:
            raise UsageProblem(
                f"{document.place(('metadata', 'namespace'))}: metadata.namespace: is {own}, but -n says {asked}",
                "leave one of them out",
            )
        if own is not None and document.is_job:
            named = str(own)
    return named or asked


def placed(content: Json, namespace: str | None) -> Json:
    """The object with a namespace, unless it already has one or none is given."""
    metadata = _object(content.get("metadata"))
    where = metadata.get("namespace") or namespace
    return {**content, "metadata": {**metadata, **({"namespace": where} if where else {})}}


def check_job(document: Document) -> list[Problem]:
    """Everything that is wrong with a DDPJob, as far as can be known without a cluster, in the order of the lines."""
    found = [
        Problem(document.place(path), dotted(path), message)
        for path, message in (*_name_problems(document.content), *_field_problems(document.content))
    ]
    found += problems_at(document, _template_problems(document.content))
    return sorted(found, key=lambda problem: _order(problem.place))


def check_metadata(document: Document) -> list[Problem]:
    """What is wrong with the names in an object of any kind."""
    return [Problem(document.place(path), dotted(path), message) for path, message in _name_problems(document.content)]


def problems_at(document: Document, fields: Sequence[tuple[str, str]]) -> list[Problem]:
    """What is wrong with fields that are named by their paths, with their places in the file.

    Args:
        document: the file's object.
        fields: path, such as `spec.trainer.args[0]`, and what is wrong.
    """
    return [Problem(document.place(parse_path(path)), path, message) for path, message in fields]


def dotted(path: Path) -> str:
    """A path as Kubernetes writes it: spec.trainer.args[0]."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def parse_path(text: str) -> Path:
    """The path that `dotted` made; a key in brackets counts as a field."""
    parts = re.findall(r"[^.\[\]]+", text)
    return tuple(int(part) if part.isdecimal() else part for part in parts)


def _name_problems(content: Json) -> Iterator[tuple[Path, str]]:
    metadata = _object(content.get("metadata"))
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if not name:
        yield ("metadata", "name"), "is missing"
    elif content.get("kind") == KIND and not is_job_name(name):
        yield ("metadata", "name"), NAME_RULE
    if namespace is not None and not is_namespace(namespace):
        yield ("metadata", "namespace"), NAMESPACE_RULE


def _field_problems(content: Json) -> Iterator[tuple[Path, str]]:
    spec = content.get("spec")
    if not isinstance(spec, dict):
        yield ("spec",), "is missing" if spec is None else "must be an object"
        return
    schema = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    yield from _unknown(spec, schema, ("spec",))
    trainer = spec.get("trainer")
    if isinstance(trainer, dict) and sum(trainer.get(key) is not None for key in _PROGRAMS) != 1:
        yield ("spec", "trainer"), "must have exactly one of script, module or command"
    yield from _rule_problems(spec)
    try:
        DDPJobSpec.model_validate(spec)
    except ValidationError as error:
        for item in error.errors(include_url=False, include_input=False):
            yield ("spec", *item["loc"]), _sentence(item)
    except (RecursionError, ValueError, OverflowError) as error:
        yield ("spec",), f"cannot be read: {error}"


def _rule_problems(spec: Json) -> Iterator[tuple[Path, str]]:
    """What the API server checks with CEL rules, as far as people often get it wrong."""
    processes = spec.get("procsPerNode", "auto")
    whole = isinstance(processes, int) and not isinstance(processes, bool)
    if not (processes == "auto" or (whole and 1 <= processes <= MAX_PROCESSES)):
        yield ("spec", "procsPerNode"), f"must be a number from 1 to {MAX_PROCESSES}, or auto"
    nodes = spec.get("nodes")
    if whole and isinstance(nodes, int) and nodes * processes > MAX_RANKS:
        yield ("spec", "nodes"), f"nodes x procsPerNode must be at most {MAX_RANKS:,} processes: reduce one of them"
    too_much = excess(spec.get("trainer"))
    if too_much is not None:
        yield ("spec", "trainer"), too_much
    env = _object(spec.get("trainer")).get("env")
    for index, variable in enumerate(env if isinstance(env, list) else ()):
        name = variable.get("name") if isinstance(variable, dict) else None
        if isinstance(name, str) and is_reserved_env(name):
            yield ("spec", "trainer", "env", index, "name"), f"the launcher sets {name}: remove it"
    rules = _object(_object(spec.get("restart"))).get("rules")
    for index, rule in enumerate(rules if isinstance(rules, list) else ()):
        if isinstance(rule, dict) and all(rule.get(name) is None for name in RULE_CONDITIONS):
            yield ("spec", "restart", "rules", index), NO_CONDITION


def _unknown(value: object, schema: Schema, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from _unknown(item, schema["items"], (*path, index))
    properties = schema.get("properties")
    if not isinstance(value, dict) or properties is None:
        return
    for key, inner in value.items():
        if key in properties:
            yield from _unknown(inner, properties[key], (*path, key))
        elif not schema.get(_KEEPS_UNKNOWN):
            near = difflib.get_close_matches(str(key), properties, 1)
            yield (*path, str(key)), f"unknown field{f'; did you mean {near[0]}?' if near else ''}"


def _template_problems(content: Json) -> list[tuple[str, str]]:
    template = _object(content.get("spec")).get("template")
    return template_problems(template) if isinstance(template, dict) else []


_SENTENCES: Final[Mapping[str, str]] = {
    "missing": "is missing",
    "value_error": "{error}",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    "string_type": "must be a string",
    "list_type": "must be a list",
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "must be an object"),
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    **dict.fromkeys(("enum", "literal_error"), "must be {expected}"),
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
    "too_short": "must have at least {min_length} items",
    "too_long": "must have at most {max_length} items",
}
"""What is wrong with a value, by pydantic's type of the error."""


def _sentence(problem: ErrorDetails) -> str:
    sentence = _SENTENCES.get(problem["type"])
    return problem["msg"] if sentence is None else sentence.format_map(problem.get("ctx", {}))


def _order(place: str) -> tuple[str, int]:
    file, _, line = place.rpartition(":")
    return (file, int(line)) if line.isdecimal() else (place, 0)


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}null"


def _lines(node: yaml.Node, path: Path) -> Iterator[tuple[Path, int]]:
    yield path, node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _lines(item, (*path, index))
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*path, str(key.value))
            yield from _lines(value, inner)
            # The line of a field is that of its name, not of its value.
            yield inner, key.start_mark.line + 1


def _yaml_place(file: str, error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return file if mark is None else f"{file}:{mark.line + 1}"


def _yaml_problem(error: yaml.YAMLError) -> str:
    return str(getattr(error, "problem", None) or error)
