"""The launcher as the one file that a pod gets; this module stays with the operator.

    python3 launcher.pyz [arguments of the program]

Comments, docstrings and the types of functions are left out, and every statement keeps its line. In the archive our
package has a name that no import statement can use: neither can a program's module be taken for one of ours, nor one of
ours for the program's.
"""

import ast
import io
import tokenize
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final

from ddpjob_launcher.archive_main import MODULES, PACKAGE

FILE: Final = "launcher.pyz"
# Started by name, whichever launcher it is.
_ALWAYS: Final = ("__init__", "main", "guard", "worker")
# What the oldest time that an archive can hold stands for: the same sources make the same archive.
_NEVER: Final = (1980, 1, 1, 0, 0, 0)
_UNIX: Final = 3
_READABLE: Final = 0o644 << 16


@cache
def sources(module: str) -> Mapping[str, str]:
    """The files of the archive by name: what the launcher that this module runs needs, and nothing of the others."""
    found = {"__main__.py": _read("archive_main").text}
    missing = [*_ALWAYS, module]
    while missing:
        name = missing.pop()
        path = f"{PACKAGE}/{name}.py"
        if path not in found:
            read = _read(name)
            found[path] = read.text
            missing += read.imported
    return MappingProxyType(dict(sorted(found.items())))


@dataclass(frozen=True, slots=True)
class _Module:
    """A module as the archive has it, and the modules of ours that it imports."""

    text: str
    imported: tuple[str, ...]


@cache
def _read(module: str) -> _Module:
    # Most modules are in every launcher.
    source = files(__package__).joinpath(f"{module}.py").read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(source)))
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.level]
    lines = source.splitlines()
    _drop_comments(source, lines)
    _drop_docstrings(nodes, lines)
    return _Module(_without_types(nodes, lines), tuple(node.module for node in imports if node.module))


def _drop_comments(source: str, lines: list[str]) -> None:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()


def _drop_docstrings(nodes: Sequence[ast.AST], lines: list[str]) -> None:
    """Each statement stays on the line where it was."""
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            words = node.body[0]
            # A body may have nothing else.
            lines[words.lineno - 1] = " " * words.col_offset + '""'
            lines[words.lineno : words.end_lineno] = [""] * ((words.end_lineno or words.lineno) - words.lineno)


def _without_types(nodes: Sequence[ast.AST], texts: Sequence[str]) -> str:
    """A module whose functions do not say what they take and return; a dataclass needs the types of its fields."""
    lines = [line.encode() for line in texts]
    cuts: list[tuple[int, int, int]] = []
    for node in nodes:
        if isinstance(node, ast.arg) and node.annotation is not None and node.lineno == node.annotation.end_lineno:
            cuts.append((node.lineno, node.col_offset + len(node.arg.encode()), node.annotation.end_col_offset or 0))
        elif isinstance(node, ast.FunctionDef) and node.returns is not None:
            line, column = node.returns.lineno, node.returns.col_offset
            cuts.append((line, lines[line - 1].rindex(b" ->", 0, column), node.returns.end_col_offset or 0))
    for line, begin, end in sorted(cuts, reverse=True):
        lines[line - 1] = lines[line - 1][:begin] + lines[line - 1][end:]
    return b"\n".join(lines).decode() + "\n"


@cache
def archive(module: str) -> bytes:
    """The archive for the launcher that this module runs: `archive_main`, and all other modules as one text."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        modules = dict(sources(module))
        main = modules.pop("__main__.py")
        parts = [part for pair in modules.items() for part in pair]
        for name, text in (("__main__.py", main), (MODULES, "\0".join(parts))):
            entry = zipfile.ZipInfo(name, _NEVER)
            entry.compress_type, entry.create_system, entry.external_attr = zipfile.ZIP_DEFLATED, _UNIX, _READABLE
            packed.writestr(entry, text, compresslevel=9)
    return buffer.getvalue()
