"""Options that have no effect beside others: refused by name, where they would be ignored."""

from collections.abc import Sequence
from dataclasses import dataclass

import typer

from ddpjob.cli.options import spelled
from ddpjob_core.api.errors import UsageProblem


@dataclass(frozen=True, slots=True)
class NoEffect:
    """Parameters of a command that have no effect where `holds`, and why."""

    holds: bool
    parameters: tuple[str, ...]
    reason: str


def refuse_without_effect(ctx: typer.Context, rules: Sequence[NoEffect]) -> None:
    """Refuse what was given on the command line in vain; a variable of the environment is given for other commands.

    Raises:
        UsageProblem: something was; each is named once, with the first reason that holds.
    """
    told, seen = [], set[str]()
    for rule in rules:
        found = [name for name in rule.parameters if rule.holds and name not in seen and _given(ctx, name)]
        seen.update(found)
        if found:
            names = ", ".join(_spelled(ctx, name) for name in found)
            told.append(f"{names} {'has' if len(found) == 1 else 'have'} no effect: {rule.reason}")
    if told:
        raise UsageProblem("\n".join(told), f"leave {'it' if len(seen) == 1 else 'them'} out")


def _given(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    # An argument that takes any number of words counts as given with none of them.
    return source is not None and source.name == "COMMANDLINE" and ctx.params[name] not in (None, (), [])


def _spelled(ctx: typer.Context, name: str) -> str:
    parameter = next(each for each in ctx.command.params if each.name == name)
    return spelled(parameter, off=ctx.params[name] is False)
