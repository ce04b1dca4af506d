"""The state of an optimizer that is divided among the ranks: the same training, and the same checkpoints."""

import hashlib
import json
import re
from pathlib import Path

import pytest

pytest.importorskip("torch")
from training import checkpoints_in, whole

PROGRAM = str(Path(__file__).with_name("programs") / "sharded.py")
SHARDED = {"shard_optimizer": True}


def trained(ranks: int, folder: Path, **trainings: tuple[int, dict[str, object]]) -> dict[str, list[str]]:
    """What each rank said, by training."""
    given = [[str(folder / name), epochs, options] for name, (epochs, options) in trainings.items()]
    found = re.findall(r"^RANK (\d) (\S+) (.*)$", whole(ranks, PROGRAM, json.dumps(given)).output, re.MULTILINE)
    return {name: [text for _, own, text in sorted(found) if own == Path(name).name] for name in trainings}


def files(folder: Path) -> dict[str, str]:
    """The sums of all that the newest checkpoint holds."""
    newest = folder / checkpoints_in(folder)[-1]
    return {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in newest.iterdir()}


def results(said: list[str]) -> set[str]:
    """The learning rate and the parameters of all ranks."""
    return {text.partition(" of ")[2] for text in said}


CASES = {
    "plain": {},
    "asynchronous": {"asynchronous": True},
    "clipped": {"clip_norm": 0.1, "optimizer": "fused"},
    "fp16": {"precision": "fp16", "optimizer": "adagrad", "accumulate": 2},
}


def test_the_training_and_its_checkpoints_are_those_of_a_whole_state(tmp_path: Path) -> None:
    off = {f"{name}-off": (2, options) for name, options in CASES.items()}
    on = {f"{name}-on": (2, options | SHARDED) for name, options in CASES.items()}
    said = trained(2, tmp_path, **off, **on)
    for name in CASES:
        assert len(results(said[f"{name}-off"])) == 1
        assert results(said[f"{name}-on"]) == results(said[f"{name}-off"]), name
        assert files(tmp_path / f"{name}-on") == files(tmp_path / f"{name}-off"), name
        counts = [int(text.partition(" of ")[0]) for text in said[f"{name}-on"]]
        assert sum(counts) == 6, name
        assert min(counts) > 0, name


def test_it_resumes_with_another_number_of_ranks_and_without_the_option(tmp_path: Path) -> None:
    for ranks, epochs in ((2, 1), (3, 2), (1, 3)):
        said = trained(
            ranks,
            tmp_path,
            whole=(epochs, {}),
            divided=(epochs, SHARDED | {"asynchronous": True}),
            changing=(epochs, SHARDED if ranks != 3 else {}),
        )
        assert results(said["divided"]) == results(said["changing"]) == results(said["whole"]), ranks
        for name in ("divided", "changing"):
            assert files(tmp_path / name) == files(tmp_path / "whole"), ranks


def test_what_cannot_be_divided_or_written_is_named_by_all_ranks(tmp_path: Path) -> None:
    said = trained(
        2,
        tmp_path,
        **{"/dev/null/volume": (1, SHARDED)},
        lbfgs=(1, SHARDED | {"optimizer": "lbfgs"}),
        every=(1, SHARDED | {"optimizer": "everything"}),
    )
    assert all("refused: shard_optimizer cannot divide a LBFGS" in text for text in said["lbfgs"])
    assert all("the optimizer's groups have other values on rank 1 than on rank 0" in text for text in said["every"])
    # The others have sent what rank 0 could not write: nobody waits for anybody.
    assert all("refused: no checkpoint at step 1: " in text for text in said["/dev/null/volume"])
    assert [len(each) for each in said.values()] == [2, 2, 2]
