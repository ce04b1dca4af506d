"""A script split into commands and words."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
def test_what_is_not_closed_is_reported_with_its_line(text: str, line: int) -> None:
    with pytest.raises(UnreadableError) as unreadable:
        words(text)
    assert unreadable.value.line == line


def test_lines_are_counted_through_continuations_and_quotes() -> None:
    found = commands("a \\\n b\n'c\nd' e\nf")
    assert [[word.line for word in command.words] for command in found] == [[1, 2], [3, 4], [5]]


@given(st.text(st.sampled_from("ab $'\"\\`(){}<>|&;#=\n1*"), max_size=30))
def test_any_text_is_read_or_told_to_be_unreadable(text: str) -> None:
    with suppress(UnreadableError):
        assert isinstance(words(text), list)
