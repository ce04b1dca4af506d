"""Sets of ordinals as text, in the form of a Job's completedIndexes: 0-2,5."""

from collections.abc import Iterable
from itertools import groupby


def format_ordinals(ordinals: Iterable[int]) -> str:
    """The ordinals in ascending order, with neighbours joined."""
    runs: list[str] = []
    for _, group in groupby(enumerate(sorted(set(ordinals))), key=lambda pair: pair[1] - pair[0]):
        run = [ordinal for _, ordinal in group]
        runs.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ",".join(runs)


def parse_ordinals(text: str, limit: int) -> frozenset[int]:
    """The ordinals below `limit` in a text that `format_ordinals` made; none for any other text.

    Args:
        text: such as 0-2,5.
        limit: one more than the largest ordinal that is looked for.
    """
    found: set[int] = set()
    for run in text.split(",") if text else ():
        first, _, last = run.partition("-")
        try:
            found.update(range(int(first), min(int(last or first) + 1, limit)))
        except ValueError:
            return frozenset()
    return frozenset(found)
