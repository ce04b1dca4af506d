"""How torch is loaded; what is changed in it is tested with a real one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TORCH = """
import gc
COLLECTED = gc.isenabled()
class Kept:
    pass
KEPT = Kept()
"""
PROGRAM = """
import gc, sys
from ddpjob_launcher.torch_import import AtImport
{before}
# The launcher's, and that of an image of ours.
sys.meta_path[:0] = [AtImport("yes"), AtImport("no")]
try:
    import torch
except RuntimeError as error:
    print(error, "torch" in sys.modules)
    import pathlib
    pathlib.Path(sys.path[0], "torch.py").write_text({torch!r})
    import importlib
    importlib.invalidate_caches()
    import torch
kept = any(each is torch.KEPT for each in gc.get_objects())
print(torch.COLLECTED, kept, gc.isenabled(), torch.__spec__.name, type(torch.__loader__).__name__)
"""


def said(folder: Path, torch: str = TORCH, before: str = "") -> list[str]:
    """What a program says that loads such a torch."""
    (folder / "torch.py").write_text(torch)
    (folder / "program.py").write_text(PROGRAM.format(before=before, torch=TORCH + "#"))
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("before", "collected_again", "kept"),
    [
        ("", "True", "False"),
        ("gc.disable()", "False", "False"),
        ("much = [[] for _ in range(200_000)]", "True", "True"),
    ],
    ids=["first of all", "by a program that collects no garbage", "by a program that has made much before"],
)
def test_no_garbage_is_collected_while_torch_is_loaded_and_its_objects_are_left_out_later(
    tmp_path: Path, before: str, collected_again: str, kept: str
) -> None:
    assert said(tmp_path, before=before) == [f"False {kept} {collected_again} torch SourceFileLoader"]


def test_a_torch_that_cannot_be_loaded_is_as_without_us_and_loaded_by_another_try(tmp_path: Path) -> None:
    failed, again = said(tmp_path, torch="raise RuntimeError('no CUDA')")
    assert failed == "no CUDA False"
    assert again.endswith("True torch SourceFileLoader")
