"""Options that have no effect beside others: refused by name, where they would be ignored."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import typer

from ddpjob.errors import UsageProblem


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
    """As a person types it."""
    parameter: Any = next(each for each in ctx.command.params if each.name == name)
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or name.upper()).partition(" ")[0].strip("[]")
    off = parameter.secondary_opts and ctx.params[name] is False
    return str((parameter.secondary_opts if off else parameter.opts)[0])
