"""The number of tasks that a script's directives and srun ask for."""

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
    """The tasks after srun's own options, which come before its program, are applied to those of the job.

    Args:
        words: the options.
        asked: what the directives of the script ask for.
    """
    given = split_options([word.text for word in words], words[0].line if words else 0)
    nodes, per_node, total = (_number(given, names) for names in (_NODES, _PER_NODE, _TOTAL))
    one = nodes if nodes is not None else asked.nodes
    # A number of tasks given to srun takes precedence over the script's number per node.
    each = per_node if per_node is not None else None if total is not None else asked.per_node
    known = {*_NODES, *_PER_NODE, *_TOTAL}
    notes = [
        Note(option.line, f"srun {option.raw}", "not carried over: the job starts every node")
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
