"""Which of pytest's workers begins with which tests: each has a run of tests of its own, before it takes others'."""

from collections.abc import Sequence

import pytest


def dealt(
    items: Sequence[pytest.Item], workers: int, longest: Sequence[str], together: Sequence[Sequence[pytest.Item]] = ()
) -> list[pytest.Item]:
    """The tests in the order in which they are cut into runs, the longest at the beginning of each run.

    Started last, a long one would run alone.

    Args:
        items: all of them.
        workers: how many there are.
        longest: what the names of the longest begin with, from the longest on.
        together: groups of tests, each of which one worker begins with, one after the other.
    """

    def place(item: pytest.Item) -> int:
        return next((place for place, name in enumerate(longest) if item.name.startswith(name)), len(longest))

    hands: list[list[pytest.Item]] = [[] for _ in range(workers)]
    for index, group in enumerate(together):
        hands[index % workers].extend(group)
    dealt_already = {each.nodeid for hand in hands for each in hand}
    for item in sorted((each for each in items if each.nodeid not in dealt_already), key=place):
        min(hands, key=len).append(item)
    return [item for hand in hands for item in hand]
