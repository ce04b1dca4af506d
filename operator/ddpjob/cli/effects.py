"""Options that have no effect together with others: refused by name instead of ignored."""

from collections.abc import Sequence
from dataclasses import dataclass

import typer

from ddpjob.cli.options import spelled
from ddpjob_core.api.errors import UsageProblem


@dataclass(frozen=True, slots=True)
class NoEffect:
    """Parameters of a command that have no effect if `holds`, and why."""

    holds: bool
    parameters: tuple[str, ...]
    reason: str


def refuse_without_effect(ctx: typer.Context, rules: Sequence[NoEffect]) -> None:
    """Refuse options that have no effect; one from an environment variable may be meant for other commands.

    Raises:
        UsageProblem: there are such options; each is named once, with the first reason that holds.
    """
    sentences, seen = [], set[str]()
    for rule in rules:
        found = [name for name in rule.parameters if rule.holds and name not in seen and _given(ctx, name)]
        seen.update(found)
        if found:
            names = ", ".join(_spelled(ctx, name) for name in found)
            sentences.append(f"{names} {'has' if len(found) == 1 else 'have'} no effect: {rule.reason}")
    if sentences:
        raise UsageProblem("\n".join(sentences), f"leave {'it' if len(seen) == 1 else 'them'} out")


def _given(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    # An argument with any number of words counts as given even without words.
    return source is not None and source.name == "COMMANDLINE" and ctx.params[name] not in (None, (), [])


def _spelled(ctx: typer.Context, name: str) -> str:
    parameter = next(each for each in ctx.command.params if each.name == name)
    return spelled(parameter, off=ctx.params[name] is False)
