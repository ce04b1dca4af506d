"""A copy of the module, which OpenTofu may write into."""

import os
import shutil
from pathlib import Path

import pytest

from hack.cache import ROOT
from hack.terraform.schema import used_types
from hack.terraform.tofu import Tofu, tofu_with_provider

MODULE = ROOT / "manifests/terraform/aws"


@pytest.fixture(scope="session")
def programs() -> Path:
    folder = os.environ.get("DDPJOB_TERRAFORM")
    if not folder:
        pytest.skip("DDPJOB_TERRAFORM does not name a folder with OpenTofu: make test builds it")
    return Path(folder)


@pytest.fixture(scope="session")
def tofu(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Tofu:
    return tofu_with_provider(programs, used_types(MODULE), tmp_path_factory.mktemp("tofu"))


@pytest.fixture(scope="session")
def initialized(tofu: Tofu, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy in which `tofu init` was run, which tests copy in turn."""
    copy = tmp_path_factory.mktemp("initialized") / "aws"
    shutil.copytree(MODULE, copy, ignore=shutil.ignore_patterns(".terraform*", "*.tfstate*", "*.tfvars"))
    code, said = tofu("init", "-backend=false", cwd=copy)
    assert code == 0, said
    return copy


@pytest.fixture
def module(initialized: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(initialized, tmp_path / "aws", symlinks=True))
