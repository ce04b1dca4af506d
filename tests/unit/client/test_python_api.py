"""The Python API up to where a cluster is asked: every mistake is a `DDPJobError` with a sentence."""

from pathlib import Path
from typing import Any

import pytest

from ddpjob import DDPJob
from ddpjob_core.api.errors import UsageProblem

# Asked of nothing: what is wrong is found before.
NO_CLUSTER: Any = object()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("print('hello')\n")
    (tmp_path / "latin.py").write_bytes(b"# caf\xe9\n")
    (tmp_path / "latin.yaml").write_bytes(b"# caf\xe9\n")
    return tmp_path


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("nowhere.py", "nowhere.py cannot be read: No such file"),
        (".", "cannot be read: Is a directory"),
        ("latin.py", "latin.py is not text: invalid continuation byte at byte 5"),
        ("a\0b", "cannot be read: embedded null byte"),
    ],
)
def test_a_script_that_cannot_be_read_is_reported_in_a_sentence(folder: Path, script: str, told: str) -> None:
    with pytest.raises(UsageProblem, match=told):
        DDPJob.submit(folder / script, image="i", cluster=NO_CLUSTER)


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("nowhere.yaml", "nowhere.yaml cannot be read: No such file"),
        (".", "cannot be read: Is a directory"),
        ("latin.yaml", "latin.yaml is not text: invalid continuation byte at byte 5"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_reported_in_a_sentence(folder: Path, file: str, told: str) -> None:
    with pytest.raises(UsageProblem, match=told):
        DDPJob.from_file(folder / file, cluster=NO_CLUSTER)


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({"A=B": "1"}, "env: 'A=B' cannot be the name of a variable"),
        ({"": "1"}, "env: '' cannot be the name of a variable"),
        ({"A B": "1"}, "env: 'A B' cannot be the name of a variable"),
        ({"RANK": "1"}, "env: the launcher sets RANK"),
        ({"DDPJOB_X": "1"}, "env: the launcher sets DDPJOB_X"),
    ],
)
def test_an_environment_variable_that_cannot_be_is_refused_by_its_name(
    folder: Path, env: dict[str, str], told: str
) -> None:
    with pytest.raises(UsageProblem, match=told):
        DDPJob.submit(folder / "train.py", image="i", env=env, cluster=NO_CLUSTER)
