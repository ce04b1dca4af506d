"""Text from outside does nothing to a terminal, a table or a log."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpjob_core.api.text import last_lines, one_line

hostile = st.text(st.sampled_from("a b\x1b[]PX^_\\m0;?1\x07\x9b\x9d\x9c\x90\x00\n\r\t\u2028\u202e\u200f\ud800é🙂"))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("plain, with é and 🙂", "plain, with é and 🙂"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("\x1b]52;c;cm0gLXJmIC8=\x07text", "text"),
        ("\x1b]0;title\x1b\\text", "text"),
        ("\x9d0;title\x9ctext", "text"),
        ("\x1bPq#0\x1b\\text", "text"),
        ("\x1b(Btext\x1b7\x1bc", "text"),
        ("\x1b]52;never closed", "52;never closed"),
        ("one\ntwo\r\nthree\u2028four\x85five", "one two  three four five"),
        ("a\tb\u00a0c", "a b c"),
        ("nul\x00 bell\x07 back\x08", "nul bell back"),
        ("user\u202egpj.exe\u202c \u200fmark\u2066s", "usergpj.exe marks"),
        ("half \ud800 pair", "half  pair"),
    ],
)
def test_what_is_kept_of_a_line(text: str, kept: str) -> None:
    assert one_line(text, 100) == kept


@given(hostile | st.text(), st.integers(1, 40))
def test_a_line_is_always_printable_and_no_longer_than_asked(text: str, most: int) -> None:
    kept = one_line(text, most)
    assert kept.isprintable()
    assert len(kept) <= most
    assert one_line(kept, most) == kept


@given(hostile | st.text(), st.integers(1, 40))
def test_lines_are_always_printable_and_no_longer_than_asked(text: str, most: int) -> None:
    kept = last_lines(text, most)
    assert all(line.isprintable() for line in kept.split("\n"))
    assert len(kept) <= most


@pytest.mark.parametrize("unit", ["\x1b]", "\x9d", "\x1b[1;", "\x1b ", "\x9b0", "\x1bP\x07"])
def test_the_time_grows_with_the_length_alone(unit: str) -> None:
    """Quadratic work on 400,000 characters would take minutes of CPU."""
    before = time.process_time()
    one_line(unit * 200_000, 100_000)
    last_lines(unit * 200_000, 100_000)
    assert time.process_time() - before < 20
