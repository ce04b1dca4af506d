"""What the numbers of an evaluation may be named."""

import math
import re

import pytest

from ddpjob_trainer.observability.metric_names import MOST_METRICS, named_numbers


class Scalar:
    """A number of some library."""

    def __float__(self) -> float:
        return 0.25


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (0.5, {"accuracy": 0.5}),
        (1, {"accuracy": 1.0}),
        (Scalar(), {"accuracy": 0.25}),
        ({"f1": Scalar(), "recall_at-5.top": 1}, {"f1": 0.25, "recall_at-5.top": 1.0}),
        ({"loss": math.inf}, {"loss": math.inf}),
        ({str(index): 0.0 for index in range(MOST_METRICS)}, {str(index): 0.0 for index in range(MOST_METRICS)}),
    ],
)
def test_a_number_has_the_name_that_it_is_given_and_others_their_own(found: object, expected: dict[str, float]) -> None:
    assert named_numbers(found, "accuracy") == expected


@pytest.mark.parametrize(
    ("found", "kind", "said"),
    [
        (None, TypeError, "evaluate must return a number on rank 0, not NoneType"),
        ([0.5, 0.6], TypeError, "not list"),
        ({"f1": None}, TypeError, "evaluate must return a number as f1 on rank 0, not NoneType"),
        ({"f1": "high"}, TypeError, "evaluate must return a number as f1 on rank 0, not str"),
        ({}, ValueError, "from 1 to 32 numbers, not 0"),
        ({str(index): 0.0 for index in range(MOST_METRICS + 1)}, ValueError, "from 1 to 32 numbers, not 33"),
        *(
            ({name: 0.5}, ValueError, f"at most 63 letters, .* not {re.escape(repr(str(name)))}")
            for name in ("", "a b", "eval/f1", "f1\n", "-f1", "é", 'x"}', "x" * 64, 1)
        ),
    ],
)
def test_what_cannot_be_shown_is_named(found: object, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        named_numbers(found, "accuracy")
