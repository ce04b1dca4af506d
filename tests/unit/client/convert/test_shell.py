"""Shell scripts read without a shell: words, variables and arithmetic."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpjob.convert.arithmetic import evaluate
from ddpjob.convert.shell import UnreadableError, commands
from ddpjob.convert.variables import Variables


def words(text: str, **known: str) -> list[list[str]]:
    variables = Variables(known)
    return [[each.text for word in command.words for each in variables.expand(word)] for command in commands(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b  c", [["a", "b", "c"]]),
        ("a \\\n  b", [["a", "b"]]),
        ("a; b && c || d | e & f", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
        ("a # b\nc", [["a"], ["c"]]),
        ("a#b", [["a#b"]]),
        ("'a b' \"c d\" e\\ f", [["a b", "c d", "e f"]]),
        ("'$X' \"$X\" \\$X $X", [["$X", "1 2", "$X", "1", "2"]]),
        ('"a\\"b\\n" ""', [['a"b\\n', ""]]),
        ("a > b 2>&1 < c &> d", [["a"]]),
        ("a <<E\nb c\nE\nd", [["a"], ["d"]]),
        ("a <<-'E'\nb\n\tE\nd", [["a"], ["d"]]),
        ("${X} ${X:-3} ${Y:-3} ${Y-$X} ${Y}", [["1", "2", "1", "2", "3", "1", "2", "${Y}"]]),
        ('"${Y:-a b}"', [["a b"]]),
        ("--n=<number_of_nodes> x<y", [["--n=<number_of_nodes>", "x"]]),
        ("$(a; b 'c)') `d` $((1 + 2 * 3))", [["$(a; b 'c)')", "`d`", "7"]]),
        ("$ a$", [["$", "a$"]]),
        ("a\r\nb\r\n", [["a"], ["b"]]),
    ],
)
def test_a_script_is_taken_apart_as_a_shell_does_it(text: str, expected: list[list[str]]) -> None:
    assert words(text, X="1 2") == expected


@pytest.mark.parametrize(("text", "line"), [("a\n'b", 2), ('a\n\n"b', 3), ("$(a", 1), ("\n${a", 2), ("`a", 1)])
def test_what_is_not_closed_is_told_with_its_line(text: str, line: int) -> None:
    with pytest.raises(UnreadableError) as unreadable:
        words(text)
    assert unreadable.value.line == line


def test_lines_are_counted_through_continuations_and_quotes() -> None:
    found = commands("a \\\n b\n'c\nd' e\nf")
    assert [[word.line for word in command.words] for command in found] == [[1, 2], [3, 4], [5]]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 * 4", 8),
        ("$A * ${B} - C", 9),
        ("7 / 2", 3),
        ("-7 / 2", -3),
        ("-7 % 3", -1),
        ("(1 + 2) * -3", -9),
        ("2 ** 10", 1024),
        ("+1", 1),
        ("1 / 0", None),
        ("2 ** 99", None),
        ("9 ** 62 ** 9", None),
        ("A + unknown", None),
        ("A = 5", None),
        ("__import__('os')", None),
        ("True + 1", None),
        ("1.5 + 1", None),
        ("(" * 300 + "1" + ")" * 300, None),
        ("", None),
    ],
)
def test_arithmetic_is_reckoned_as_a_shell_does_it_or_not_at_all(text: str, value: int | None) -> None:
    assert evaluate(text, {"A": 3, "B": 4, "C": 3}.get) == value


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


@given(st.text(st.sampled_from("ab $'\"\\`(){}<>|&;#=\n1*"), max_size=30))
def test_any_text_is_read_or_told_to_be_unreadable(text: str) -> None:
    with suppress(UnreadableError):
        assert isinstance(words(text), list)
