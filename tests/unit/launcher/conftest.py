"""What the launcher's tests share."""

from pathlib import Path

import pytest

from tests.unit.launcher.running import packed


@pytest.fixture(scope="session")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive, where a user's folder does not hold it."""
    return packed(tmp_path_factory.mktemp("delivered"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with a package and a module, each of which has a neighbour."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").touch()
    (tmp_path / "neighbour.py").write_text("mine = True")
    (tmp_path / "pkg" / "neighbour.py").write_text("mine = False")
    return tmp_path
