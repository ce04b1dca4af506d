"""docs/failures.md shows the default restart rules as they are."""

from pathlib import Path

from ddpjob_core.api.restart import DEFAULT_RULES, RestartRule

PAGE = Path(__file__).parents[3] / "docs" / "failures.md"


def as_yaml(rule: RestartRule) -> str:
    return "{" + ", ".join(f"{name}: {as_flow(value)}" for name, value in rule.to_wire().items()) + "}"


def as_flow(value: object) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value)


def test_the_page_lists_the_default_rules_in_their_order() -> None:
    rows = [f"| {known.failures} | `{as_yaml(known.rule)}` | {known.because} |" for known in DEFAULT_RULES]
    assert "\n".join(("| failure | rule | why |", "|---|---|---|", *rows, "")) in PAGE.read_text()
