"""How many tasks Slurm was asked for, by a script's directives and by srun itself."""

from collections.abc import Sequence
from dataclasses import dataclass

from ddpjob.convert.directives import Directive, split_options
from ddpjob.convert.notes import Note
from ddpjob.convert.variables import Text


@dataclass(frozen=True, slots=True)
class Tasks:
    """Nodes, and the processes that srun starts on them."""

    nodes: int | None = None
    per_node: int | None = None
    total: int | None = None


_NODES = ("nodes", "N")
_PER_NODE = ("ntasks-per-node",)
_TOTAL = ("ntasks", "n")


def read_srun(words: Sequence[Text], asked: Tasks) -> tuple[Tasks, list[Note]]:
    """What srun's own options, before its program, make of what the job was given.

    Args:
        words: the options.
        asked: what the directives of the script ask for.
    """
    given = split_options([word.text for word in words], words[0].line if words else 0)
    nodes, per_node, total = (_number(given, names) for names in (_NODES, _PER_NODE, _TOTAL))
    one = nodes if nodes is not None else asked.nodes
    # A number of tasks that srun itself is given counts before one a node of the script.
    each = per_node if per_node is not None else None if total is not None else asked.per_node
    told = [_NODES, _PER_NODE, _TOTAL]
    known = {name for names in told for name in names}
    notes = [
        Note(option.line, f"srun {option.raw}", "not carried over: the job starts every node by itself")
        for option in given
        if option.name not in known
    ]
    return Tasks(one, each, total if total is not None else asked.total), notes


def _number(given: Sequence[Directive], names: Sequence[str]) -> int | None:
    for option in reversed(given):
        if option.name in names:
            most = option.value.rpartition("-")[2]
            return int(most) if most.isdecimal() and int(most) else None
    return None
