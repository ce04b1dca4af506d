"""What the archive starts with: it finds our modules, one text there, since many small files compress badly."""

# ruff: noqa: ANN401 -- what an import hook is handed

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import Any

PACKAGE = "ddp-job"
# Name in the archive of the text that holds them: path and source in turns, a NUL between any two.
MODULES = "modules"


class Finder:
    """Finds our modules, and loads them."""

    def __init__(self, archive: str, text: str) -> None:
        """Take the path of the archive and its text."""
        parts = text.split("\0")
        self._archive, self._sources = archive, dict(zip(parts[::2], parts[1::2]))  # noqa: B905 -- not in Python 3.8

    def find_spec(self, name: str, *_: object) -> Any:
        """The module if it is ours."""
        file = _file(name)
        if file not in self._sources:
            return None
        spec: Any = ModuleSpec(name, self, origin=f"{self._archive}/{file}", is_package=name == PACKAGE)  # type: ignore[arg-type]
        spec.has_location = True
        return spec

    def create_module(self, _: object) -> None:
        """Let Python make the module."""

    def exec_module(self, module: Any) -> None:
        """Run the module."""
        source = self._sources[_file(module.__name__)]
        exec(compile(source, module.__file__, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 -- our own

    def get_source(self, name: str) -> str | None:
        """The text of a module, for tracebacks."""
        return self._sources.get(_file(name))


def _file(name: str) -> str:
    return name.replace(".", "/") + ("/__init__.py" if name == PACKAGE else ".py")


if __name__ == "__main__":
    loader: Any = globals()["__loader__"]
    sys.meta_path.append(Finder(loader.archive, loader.get_data(MODULES).decode()))
    # The archive: a program's imports have no business in it.
    del sys.path[0]
    sys.exit(import_module(f"{PACKAGE}.main").main())
