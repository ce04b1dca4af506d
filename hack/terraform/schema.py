"""The schema of Terraform's provider for AWS, read from the bindings that HashiCorp generated from it.

The bindings for one version of the provider are TypeScript in the source maps of a package. Their generator wrote down
what the provider said of each resource: of each attribute its type, and whether it is required, optional or computed,
and of each block how it nests. What the provider checks in code of its own is not in it.
"""

import base64
import io
import json
import re
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]

_VERSION: Final = re.compile(r"/providers/hashicorp/aws/(\d+\.\d+\.\d+)/docs")
_USED: Final = re.compile(r'^(resource|data) "aws_(\w+)" "', re.MULTILINE)
_MAP: Final = re.compile(r"sourceMappingURL=data:application/json;base64,(\S+)")
_CLASS: Final = re.compile(r"^export class (\w+) extends cdktf\.(\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FUNCTION: Final = re.compile(r"^export function (\w+)ToHclTerraform\(.*?\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_INTERFACE: Final = re.compile(r"^export interface (\w+)(?: extends [\w.]+)? \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_ENTRY: Final = re.compile(
    r'^ +(\w+): \{\n +value: (.*),\n +isBlock: (?:true|false),\n +type: "(\w+)",\n +storageClassType: "(\w+)",\n',
    re.MULTILINE,
)
_ATTRIBUTE: Final = re.compile(r"^  // (\w+) - computed: (\w+), optional: (\w+), required: (\w+)\n", re.MULTILINE)
_GETTER: Final = re.compile(r"return (cdktf\.Fn\.tolist\()?this\.get(\w*)Attribute\(")
_COMPUTED_MAP: Final = re.compile(r"= new cdktf\.(\w+Map)\(")
_NESTED: Final = re.compile(r'= new (\w+?)(List|OutputReference)\(this, "\w+"(?:, (true|false))?\);')
_TYPES: Final[Mapping[str, Any]] = {
    "string": "string",
    "number": "number",
    "boolean": "bool",
    "stringList": "string",
    "numberList": "number",
    "stringMap": "string",
    "booleanMap": "bool",
    "numberMap": "number",
}
_GETTERS: Final[Mapping[str, Any]] = {
    "String": "string",
    "Number": "number",
    "Boolean": "bool",
    "List": ["list", "string"],
    "NumberList": ["list", "number"],
    "StringMap": ["map", "string"],
    "BooleanMap": ["map", "bool"],
    "NumberMap": ["map", "number"],
}


class SchemaError(Exception):
    """The bindings are not of the form that is read here; the message says where."""


def used_types(folder: Path) -> set[tuple[str, str]]:
    """Which resources and data sources a module has: pairs such as ("resource", "instance")."""
    return {pair for file in folder.glob("*.tf") for pair in _USED.findall(file.read_text())}


@dataclass(frozen=True)
class ProviderSchema:
    """What a provider accepts.

    Attributes:
        version: of the provider.
        content: the schema of its configuration and of some types, as `tofu providers schema -json` has it.
    """

    version: str
    content: Json


def provider_schema(wheel: Path, types: Iterable[tuple[str, str]]) -> ProviderSchema:
    """The schema of the provider's configuration and of these types.

    Args:
        wheel: of cdktf-cdktf-provider-aws.
        types: pairs such as ("resource", "instance"). One that the provider does not have is left out: a module
            that uses it is then refused as by the provider.

    Raises:
        SchemaError: the wheel is another one than this reads.
    """
    folders = {(kind, name): ("data-aws-" if kind == "data" else "") + name.replace("_", "-") for kind, name in types}
    sources = _sources(wheel, {"provider", *folders.values()})
    version = _VERSION.search(sources.get("provider", ""))
    if version is None:
        raise SchemaError(f"{wheel.name}: no bindings of a version of the provider for AWS in it")

    def of(wanted: str) -> Json:
        return {
            f"aws_{name}": {"block": _Source(sources[folder]).top()}
            for (kind, name), folder in sorted(folders.items())
            if kind == wanted and folder in sources
        }

    content = {
        "provider": {"block": _Source(sources["provider"]).top()},
        "resource_schemas": of("resource"),
        "data_source_schemas": of("data"),
    }
    return ProviderSchema(version[1], content)


def _sources(wheel: Path, folders: set[str]) -> dict[str, str]:
    """The TypeScript of each of these folders that is there."""
    found: dict[str, str] = {}
    with zipfile.ZipFile(wheel) as archive:
        packed = [name for name in archive.namelist() if name.endswith(".jsii.tgz")]
        if len(packed) != 1:
            raise SchemaError(f"{wheel.name}: {len(packed)} files .jsii.tgz in it, not one")
        with tarfile.open(fileobj=io.BytesIO(archive.read(packed[0]))) as package:
            for member in package:
                parts = Path(member.name).parts
                if parts[1:2] == ("lib",) and parts[3:] == ("index.js",) and parts[2] in folders:
                    file = package.extractfile(member)
                    text = file.read().decode() if file else ""
                    match = _MAP.search(text)
                    if not match:
                        raise SchemaError(f"{wheel.name}: {member.name} has no source map")
                    found[parts[2]] = json.loads(base64.b64decode(match[1]))["sourcesContent"][0]
    return found


@dataclass(frozen=True)
class _Given:
    """What a configuration may set.

    Attributes:
        value: the expression that writes it.
        form: simple, list, set, map or struct.
        storage: the type of it or of its elements.
    """

    value: str
    form: str
    storage: str


@dataclass(frozen=True)
class _Part:
    """An attribute or a block: how the source comments on it, and the code below that comment."""

    name: str
    computed: bool
    optional: bool
    required: bool
    code: str


class _Source:
    """The bindings of one resource, data source or provider."""

    def __init__(self, text: str) -> None:
        classes = {name: (base, body) for name, base, body in _CLASS.findall(text)}
        self._classes = {name: body for name, (_, body) in classes.items()}
        self._functions = {name.lower(): body for name, body in _FUNCTION.findall(text)}
        self._interfaces = dict(_INTERFACE.findall(text))
        tops = [name for name, (base, _) in classes.items() if base.startswith("Terraform")]
        if len(tops) != 1:
            raise SchemaError(f"bindings with {len(tops)} resources in one file, not one")
        self._top = tops[0]

    def top(self) -> Json:
        """The block of the resource itself."""
        body = self._classes[self._top]
        return self._block(self._parts(body), _given(body))

    def _block(self, parts: Iterable[_Part], given: Mapping[str, _Given]) -> Json:
        block: Json = {"attributes": {}, "block_types": {}}
        for part in parts:
            of = given.get(part.name)
            if of and _is_block(of):
                block["block_types"][part.name] = self._nested_block(part, of)
            else:
                flags = {"required": part.required, "optional": part.optional, "computed": part.computed}
                block["attributes"][part.name] = {"type": self._type(part, of), **flags}
        return block

    def _nested_block(self, part: _Part, of: _Given) -> Json:
        name = of.storage.removesuffix("List") if of.form in ("list", "set") else of.storage
        single = f"new {name}OutputReference(" in part.code
        return {
            "nesting_mode": "single" if of.form == "struct" else of.form,
            "min_items": int(part.required and of.form != "struct"),
            "max_items": int(single and of.form != "struct"),
            "block": self._struct(name),
        }

    def _struct(self, name: str) -> Json:
        body = self._classes.get(f"{name}OutputReference", "")
        given = _given(self._functions.get(name.lower(), ""))
        # A provider's own blocks have an interface alone.
        parts = self._parts(body) if body else self._parts_of_interface(name, given)
        return self._block(parts, given)

    def _type(self, part: _Part, of: _Given | None) -> Any:  # noqa: ANN401 a type in JSON is a string or a list
        if of and of.storage in _TYPES:
            of_element = _TYPES[of.storage]
            return of_element if of.form == "simple" else [of.form, of_element]
        nested = _NESTED.search(part.code)
        if nested:
            element = ["object", {name: each["type"] for name, each in self._struct(nested[1])["attributes"].items()}]
            return [of.form if of else "set" if nested[3] == "true" else "list", element]
        computed_map = _COMPUTED_MAP.search(part.code)
        if computed_map and computed_map[1] in _GETTERS:
            return _GETTERS[computed_map[1]]
        getter = _GETTER.search(part.code)
        if getter and getter[2] in _GETTERS:
            found = _GETTERS[getter[2]]
            return ["set", found[1]] if getter[1] else found
        raise SchemaError(f"{self._top}: the type of {part.name} is not known")

    def _parts(self, body: str) -> list[_Part]:
        heads = list(_ATTRIBUTE.finditer(body))
        ends = [*(head.start() for head in heads), len(body)][1:]
        return [
            _Part(
                name=head[1],
                computed=head[2] == "true",
                optional=head[3] == "true",
                required=head[4] == "true",
                code=body[head.end() : end],
            )
            for head, end in zip(heads, ends, strict=False)
        ]

    def _parts_of_interface(self, name: str, given: Mapping[str, _Given]) -> list[_Part]:
        body = self._interfaces.get(name)
        if body is None:
            raise SchemaError(f"{self._top}: no {name} in its bindings")

        def part(field: str, of: _Given) -> _Part:
            found = re.search(r"struct!?\.(\w+)", of.value)
            optional = f"readonly {found[1] if found else field}?:" in body
            return _Part(field, computed=False, optional=optional, required=not optional, code="")

        return [part(field, of) for field, of in given.items()]


def _given(code: str) -> dict[str, _Given]:
    return {name: _Given(value, form, storage) for name, value, form, storage in _ENTRY.findall(code)}


def _is_block(of: _Given) -> bool:
    """Whether it is written as a block; lists of objects that are attributes are marked in the expression alone."""
    return of.storage not in _TYPES and not re.search(r"listMapperHcl\(\w+, false\)", of.value)
