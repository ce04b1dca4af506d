"""When evaluations end a training."""

import math

import pytest

from ddpjob_trainer.loop.early_stopping import EarlyStop, EarlyStopping, Mode

NAN = math.nan


def ends_after(how: EarlyStopping, values: list[float]) -> int | None:
    """The evaluation, counted from 1, after which the training ends."""
    stop = EarlyStop(how)
    for count, value in enumerate(values, start=1):
        stop.add(value, 10 * count)
        if stop.due:
            return count
    return None


@pytest.mark.parametrize(
    ("how", "values", "expected"),
    [
        (EarlyStopping(patience=1), [0.5, 0.6, 0.7], None),
        (EarlyStopping(patience=1), [0.5, 0.6, 0.6], 3),
        (EarlyStopping(patience=2), [0.5, 0.4, 0.6, 0.6, 0.5], 5),
        (EarlyStopping(patience=2), [0.5, 0.4, 0.6, 0.6, 0.7], None),
        (EarlyStopping(patience=2, mode=Mode.MIN), [0.5, 0.4, 0.45, 0.4], 4),
        (EarlyStopping(patience=1, mode=Mode.MIN), [0.5, 0.4, 0.3], None),
        # Small gains add up only where each is compared with the best that has counted.
        (EarlyStopping(patience=3, min_delta=0.1), [0.50, 0.58, 0.66, 0.74, 0.77], None),
        (EarlyStopping(patience=2, min_delta=0.1), [0.50, 0.60, 0.60], 3),
        (EarlyStopping(patience=2), [NAN, NAN], 2),
        (EarlyStopping(patience=2), [NAN, 0.5, NAN, 0.5], 4),
        (EarlyStopping(patience=1, mode=Mode.MIN), [math.inf, 3.0, math.inf], 3),
    ],
)
def test_a_training_ends_with_the_last_evaluation_that_patience_allows(
    how: EarlyStopping, values: list[float], expected: int | None
) -> None:
    assert ends_after(how, values) == expected


def test_the_count_goes_on_where_its_state_is_taken_over() -> None:
    how = EarlyStopping(patience=3)
    before = EarlyStop(how)
    assert before.best_step is None
    for step, value in enumerate((0.4, 0.5, 0.4, 0.4), start=1):
        before.add(value, step)
    after = EarlyStop(how)
    after.load_state_dict(before.state_dict())
    assert not after.due
    after.add(0.5, 5)
    assert (after.due, after.best_step) == (True, 2)


def test_the_count_of_a_checkpoint_with_other_names_is_taken_over() -> None:
    stop = EarlyStop(EarlyStopping(patience=3))
    stop.load_state_dict({"best": 0.5, "count": 2, "best_step": 7})
    assert (stop.due, stop.no_improvement_for, stop.best_step) == (False, 2, 7)
    stop.add(0.4, 9)
    assert stop.due


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"patience": 0}, "EarlyStopping.patience must be at least 1, not 0"),
        ({"patience": 1, "min_delta": -0.1}, "EarlyStopping.min_delta must be a finite number of at least 0"),
        ({"patience": 1, "min_delta": NAN}, "EarlyStopping.min_delta must be a finite number of at least 0"),
        ({"patience": 1, "mode": "best"}, "EarlyStopping.mode must be one of max, min, not 'best'"),
    ],
)
def test_options_that_cannot_work_are_named(options: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        EarlyStopping(**options)  # type: ignore[arg-type]
    assert EarlyStopping(patience=1, mode="min").mode is Mode.MIN  # type: ignore[arg-type]
