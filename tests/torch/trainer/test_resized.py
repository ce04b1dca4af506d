"""With any number of ranks a training is the one that it would have been with those that it began with."""

import json
import logging
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from training import plain  # noqa: E402

from ddpjob_trainer import Group, Optimization  # noqa: E402
from ddpjob_trainer.checkpointing.tree import from_json  # noqa: E402
from ddpjob_trainer.data.sharing import StepSize  # noqa: E402
from ddpjob_trainer.loop.global_batch import GlobalBatch  # noqa: E402

PROGRAM = str(Path(__file__).with_name("programs") / "resized.py")
SIZE, EPOCHS = 205, 2
BEGAN = 2
"""Ranks. In an epoch of 205 samples they make 12 steps of 16, and one of 13, wherever a batch has 8."""
CHANGES = ((2, 4), (3, 9), (1, 15), (4, None))
"""Ranks, and the step after which they are lost: the end of an epoch comes on one rank, and on four."""
TOLERANCE = 5e-6
"""Of losses and parameters, which are of the order of 1, in float32: sums of the same numbers in another order."""
ALL = {"batch_policy": "constant"}
TRAININGS: dict[str, tuple[int, dict[str, Any]]] = {
    "train": (8, {}),
    "train, accumulated": (4, {"accumulate": 2}),
    "train, last dropped": (8, {"drop_last": True}),
    "train, weighted": (8, {"weighted": True}),
    "train, clipped AdamW, divided": (8, {"adam": True, "clip_norm": 0.5, "shard_optimizer": True}),
    "train, batches": (1, {"loader": "batches", "accumulate": 2}),
    "session": (8, {"loop": "session", **ALL}),
    "session, accumulated": (4, {"loop": "session", "accumulate": 2}),
    "session, last dropped": (8, {"loop": "session", "drop_last": True, **ALL}),
    "session, weighted": (8, {"loop": "session", "weighted": True, **ALL}),
    "session, batches": (1, {"loop": "session", "loader": "batches", **ALL}),
    "session, stream": (8, {"loop": "session", "loader": "stream", **ALL}),
}
OTHERS: dict[str, tuple[int, dict[str, Any]]] = {
    "one batch per step": (8, {"loop": "one batch"}),
    "scaled": (8, {"batch_policy": "scale"}),
}


class Curve:
    """What the ranks said of one training."""

    def __init__(self, said: list[str]) -> None:
        text = "".join(said)
        self.text = text
        found = re.findall(r"step (\d+)/0 \| loss (\S+) rate (\S+)", text)
        self.losses = {int(step): float.fromhex(loss) for step, loss, _ in found}
        self.rates = {int(step): float.fromhex(rate) for step, _, rate in found}
        self.read: dict[int, Counter[int]] = {}
        for step, numbers in re.findall(r"STEP (\d+) READ \[(.*)\]", text):
            self.read.setdefault(int(step), Counter()).update(map(int, numbers.split(", ")))
        self.ranks = {int(step): len(re.findall(rf"RANK \d+ STEP {step} READ", text)) for step in map(str, self.read)}
        self.plans = {int(steps) for steps in re.findall(r"PLAN (\d+)", text)}
        ends = re.findall(r"END (.*)", text)
        self.end = [float.fromhex(value) for value in ends[-1].split()] if ends else []


def run(
    folder: Path, trainings: dict[str, tuple[int, dict[str, Any]]], *attempts: tuple[int, int | None]
) -> dict[str, Curve]:
    """Name to what became of it over these numbers of ranks, each until a step."""
    said: dict[str, list[str]] = {name: [] for name in trainings}
    arguments = json.dumps([[name, *how] for name, how in trainings.items()])
    for ranks, until in attempts:
        for done in plain(ranks, PROGRAM, str(folder), arguments, *([] if until is None else [str(until)])):
            assert done.code == 0, done.output
            parts = re.split(r"^== (.*)\n", done.output, flags=re.MULTILINE)[1:]
            assert parts[::2] == list(trainings)
            for name, text in zip(parts[::2], parts[1::2], strict=True):
                assert text.count("LOST") == (until is not None)
                said[name].append(text)
    return {name: Curve(texts) for name, texts in said.items()}


@pytest.fixture(scope="module")
def unscaled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Curve]:
    return run(tmp_path_factory.mktemp("unscaled"), TRAININGS, (BEGAN, None))


@pytest.fixture(scope="module")
def resized(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Curve]:
    return run(tmp_path_factory.mktemp("resized"), TRAININGS, *CHANGES)


@pytest.mark.parametrize("name", TRAININGS)
def test_over_any_sizes_losses_and_parameters_are_those_of_the_unscaled_training(
    name: str, unscaled: dict[str, Curve], resized: dict[str, Curve]
) -> None:
    expected, found = unscaled[name], resized[name]
    assert list(found.losses) == list(expected.losses) == list(range(1, max(expected.losses) + 1))
    assert list(found.losses.values()) == pytest.approx(list(expected.losses.values()), abs=TOLERANCE)
    assert found.end == pytest.approx(expected.end, abs=TOLERANCE)
    assert len(expected.end) > 100
    assert max(expected.losses.values()) > 100 * TOLERANCE, "something is learnt"
    assert found.rates == expected.rates
    if "stream" not in name:
        # How long a stream is, is not known.
        assert found.plans == expected.plans == {max(expected.losses)}


@pytest.mark.parametrize("name", TRAININGS)
def test_each_step_reads_the_samples_of_the_same_step_of_the_unscaled_training(
    name: str, unscaled: dict[str, Curve], resized: dict[str, Curve]
) -> None:
    expected, found = unscaled[name], resized[name]
    ranks = [next(ranks for ranks, until in CHANGES if until is None or step <= until) for step in found.read]
    assert [found.ranks[step] for step in found.read] == ranks, "each change of size happened where it should"
    if "batches" in name or "stream" in name:
        # A rank without a batch of its own in a round of a step takes part with one that counts nothing: the first one.
        for step, read in found.read.items():
            assert set(expected.read[step]) <= set(read) <= set(expected.read[step]) | {0, 1}
        return
    assert found.read == expected.read
    epochs = sum(found.read.values(), Counter[int]())
    if "last dropped" in name:
        # 205 are 12 steps of two batches of 8, and 13 that do not fill one on both ranks.
        assert epochs.total() == EPOCHS * 192
    else:
        assert epochs == Counter(dict.fromkeys(range(SIZE), EPOCHS))


def test_a_loop_that_takes_one_batch_per_step_trains_what_fits_and_says_so(tmp_path: Path) -> None:
    found = run(tmp_path, OTHERS, *CHANGES)
    sizes = {name: [read.total() for _, read in sorted(curve.read.items())] for name, curve in found.items()}
    one, scaled = "one batch per step", "scaled"
    # 2 and 3 ranks read 9 x 16 samples of the first epoch, one rank 8 in each step, and 4 ranks the rest.
    assert sizes[one] == [16] * 9 + [8] * 6 + [13] + [16] * 12 + [13]
    assert "with 1 rank instead of 2 the global batch is 8 samples instead of 16" in found[one].text
    assert "`with step as batches` gives all batches of a step" in found[one].text
    assert sizes[scaled] == [16] * 4 + [24] * 5 + [8] * 2 + [5] + [8] * 3 + [32] * 5 + [21]
    assert "the global batch is now 24 samples instead of 16" in found[scaled].text
    for name in OTHERS:
        assert sum(found[name].read.values(), Counter[int]()) == Counter(dict.fromkeys(range(SIZE), EPOCHS))


class Source:
    """Samples, or else whole batches."""

    def __init__(self, batch_size: int = 8, *, divides: bool = True) -> None:
        self.divides = divides
        self.batch_size = batch_size
        self.checked: list[StepSize] = []

    def check_step(self, step: StepSize) -> None:
        self.checked.append(step)


def continued(
    group: Group, ranks: int, *layers: nn.Module, batch_size: int = 8, divides: bool = True, **options: Any
) -> StepSize:
    """The size of the steps of a training that began with other ranks."""
    batch = GlobalBatch(Optimization(**options), replace(group, world_size=ranks))
    accumulate = options.get("accumulate", 1)
    batch.load_state_dict({"batchSize": batch_size, "accumulate": accumulate, "ranks": 2})
    source = Source(batch_size, divides=divides)
    size = batch.begin(source, [nn.Sequential(*layers)])  # type: ignore[arg-type]
    assert source.checked == [size] == [batch.size]
    assert batch.state_dict()["ranks"] == (ranks if options.get("batch_policy") == "scale" else 2)
    return size


@pytest.mark.parametrize(
    ("ranks", "layers", "options", "said"),
    [
        (3, [nn.BatchNorm1d(4)], {}, "normalises over batches of 5 to 6 samples instead of 8, .* learnt: 0. Use"),
        (4, [nn.BatchNorm1d(4)], {}, "over batches of 4 samples instead of 8"),
        (16, [nn.BatchNorm2d(4)], {}, "batches of 1 samples .* refuses a batch of one value per channel"),
        (3, [nn.BatchNorm1d(4) for _ in range(5)], {}, "learnt: 0, 1, 2 and 2 more. Use .*sync_batch_norm"),
        (1, [nn.SyncBatchNorm(4)], {}, "2 batches per rank instead of 1, and SyncBatchNorm .* by itself"),
        (1, [nn.BatchNorm1d(4)], {"sync_batch_norm": True}, "2 batches per rank instead of 1, and SyncBatchNorm"),
        # Batches of the size that they had.
        (1, [nn.BatchNorm1d(4)], {}, None),
        (3, [nn.BatchNorm1d(4)], {"batch_policy": "scale"}, None),
        (1, [nn.BatchNorm1d(4)], {"divides": False}, None),
        (1, [nn.BatchNorm1d(4)], {"divides": False, "batch_size": 0}, None),
        (2, [nn.BatchNorm1d(4)], {}, None),
        (3, [nn.SyncBatchNorm(4)], {}, None),
        (3, [nn.GroupNorm(2, 4)], {}, None),
    ],
)
def test_batch_norm_is_warned_of_where_batches_have_another_size(  # noqa: PLR0917 a table
    ranks: int,
    layers: list[nn.Module],
    options: dict[str, Any],
    said: str | None,
    group: Group,
    caplog: pytest.LogCaptureFixture,
) -> None:
    continued(group, ranks, *layers, **options)
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    if said is None:
        assert warnings == []
    else:
        assert len(warnings) == 1
        assert re.search(said, warnings[0])


def test_more_ranks_than_samples_are_warned_of(group: Group, caplog: pytest.LogCaptureFixture) -> None:
    assert continued(group, 16) == StepSize(1, 2)
    assert "nothing to compute" not in caplog.text
    assert continued(group, 17) == StepSize(1, 2)
    assert "1 of 17 ranks have nothing to compute: a step has 16 samples" in caplog.text
    assert continued(group, 6, batch_size=0, divides=False, accumulate=2) == StepSize(2, 2)
    assert "2 of 6 ranks have nothing to compute: a step has 4 batches, in whole batches" in caplog.text


def test_a_static_graph_scales_because_it_cannot_have_several_batches(group: Group) -> None:
    assert continued(group, 1) == StepSize(1, 2)
    assert continued(group, 1, batch_policy="scale") == StepSize(1, 1)
    how = Optimization(static_graph=True)
    assert how.policy == "scale"
    with pytest.raises(ValueError, match='static_graph with batch_policy="constant" fails'):
        Optimization(static_graph=True, batch_policy="constant")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"Optimization\.batch_policy must be one of constant, scale, not 'same'"):
        Optimization(batch_policy="same")  # type: ignore[arg-type]


def test_a_program_that_asks_for_other_batches_has_the_global_batch_that_it_asks_for(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    one = replace(group, world_size=1)
    for asked, size, said in (
        # As one that divides a size of its own by the number of ranks.
        (16, StepSize(1, 1), None),
        (12, StepSize(1, 1), "the global batch is now 12 samples instead of 16 samples"),
    ):
        caplog.clear()
        batch = GlobalBatch(Optimization(), one)
        batch.load_state_dict({"batchSize": 8, "accumulate": 1, "ranks": 2})
        # No step of this loader is left: it says nothing of what the training goes on with.
        assert batch.begin(Source(4), [], over=True) == StepSize(1, 1)  # type: ignore[arg-type]
        assert batch.begin(Source(asked), []) == size  # type: ignore[arg-type]
        assert [record.getMessage().partition(": ")[2] for record in caplog.records] == ([said] if said else [])


def test_a_checkpoint_that_does_not_say_with_what_it_began_goes_on_with_the_ranks_that_there_are(group: Group) -> None:
    batch = GlobalBatch(Optimization(accumulate=2), replace(group, world_size=3))
    assert batch.state_dict() == {}
    batch.load_state_dict(batch.state_dict())
    assert batch.begin(Source(), []) == StepSize(2, 3)  # type: ignore[arg-type]
    assert batch.state_dict() == {"batchSize": 8, "accumulate": 2, "ranks": 3}


def test_a_checkpoint_of_an_older_version_goes_on_with_another_number_of_ranks(tmp_path: Path) -> None:
    training = {"older": (8, {})}
    run(tmp_path, training, (2, 4))
    for file in tmp_path.glob("older/**/checkpoint.json"):
        manifest = json.loads(file.read_text())
        saved = from_json(manifest["content"].pop("globalBatch"), {})
        assert saved == {"batchSize": 8, "accumulate": 1, "ranks": 2}
        file.write_text(json.dumps(manifest))
    found = run(tmp_path, training, (3, None))["older"]
    assert [read.total() for _, read in sorted(found.read.items())] == [24] * 5 + [21] + [24] * 8 + [13]
