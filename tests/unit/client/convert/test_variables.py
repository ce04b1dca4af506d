"""What is known about the variables of a script."""

import pytest

from ddpjob.convert.shell import commands
from ddpjob.convert.variables import Variables


def assigned(script: str) -> Variables:
    variables = Variables({})
    for command in commands(script):
        for word in command.words:
            name, _, _ = word.raw.partition("=")
            variables.assign(name.rstrip("+"), word, certain=True, append=name.endswith("+"))
    return variables


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("A=1", "1"),
        ("A='a b'", "a b"),
        ("A=1\nA=$A$A", "11"),
        ("A=1\nA+=2", "12"),
        ("B=2\nA=$(($B * 4))", "8"),
        ("A=(x y)", "x y"),
        ("B=(x 'y z')\nA=${B[1]}", "y z"),
        ("B=(x y)\nA=${#B[@]}", "2"),
        ("A=(x)\nA+=(y)", "x y"),
        ("A=/data/$USER/x", "/data/$USER/x"),
        ("A=$(hostname)", None),
        ("A=$UNKNOWN", None),
        ("A=$(date)-x", None),
        ("B=x\nA=${B%%.*}", None),
        ("\n".join(["A=" + "x" * 999, *(["A=$A$A"] * 40)]), None),
    ],
)
def test_a_variable_holds_what_can_be_known_of_it(script: str, value: str | None) -> None:
    text = assigned(script).text("A")
    assert (text.text if text else None) == value


def test_names_of_nodes_are_noticed_through_other_variables() -> None:
    variables = Variables({})
    lines = ["N=$(cat $PBS_NODEFILE | uniq)", "A=($N)", "H=${A[0]}", "I=$H:1", "J=7"]
    known = [
        variables.assign(word.raw.partition("=")[0], word, certain=True)
        for command in commands("\n".join(lines))
        for word in command.words
    ]
    assert known == [False, False, False, False, True]
