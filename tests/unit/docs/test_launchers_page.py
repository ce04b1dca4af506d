"""docs/launchers.md shows the devices that count as GPUs as they are."""

from pathlib import Path

from ddpjob_core.api.accelerators import ACCELERATORS

PAGE = Path(__file__).parents[3] / "docs" / "launchers.md"


def test_the_page_lists_the_accelerators_in_their_order() -> None:
    rows = [
        f"| {known.written} | {known.what} | {'one for each' if known.process_each else '1'} | "
        f"`{known.backend.value}`{': ' * bool(known.because)}{known.because} |"
        for known in ACCELERATORS
    ]
    head = ("| resource | what one is | processes per node | backend |", "|---|---|---|---|")
    assert "\n".join((*head, *rows, "")) in PAGE.read_text()
