import pytest

from hack.lint.vocabulary import ALLOWED, PHRASES, occurrences, read_files


def found(text: str) -> list[tuple[str, int]]:
    return [(one.phrase.name, one.line) for one in occurrences("a.py", text)]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("this is no YAML", "is no X"),
        ("they are no packages", "are no X"),
        ("def test_it_is_no_file() -> None:", "is no X"),
        ("acts without coming\n    # to rest", "coming to rest"),
        ('    "told "\n    f"by {name}"', "told by"),
        ("it is\ntold here", "is told"),
        ("steps must be a whole number, as is a whole number", "a whole number"),
        ("_GRAVES = 3", "graves"),
        ("class Departed:", "Departed"),
    ],
)
def test_a_phrase_is_found_across_ends_of_lines_in_comments_strings_and_names(text: str, name: str) -> None:
    assert found(text) == [(name, 1)]


@pytest.mark.parametrize(
    "text",
    [
        "there is no finalizer",
        "it is no longer there",
        "it is not told",
        "besides",
        "must be a whole number",
        "x = y if is_not else None",
        "engraves",
        "shallow",
    ],
)
def test_what_reads_well_is_left_alone(text: str) -> None:
    assert found(text) == []


def test_the_line_of_a_phrase_is_the_one_on_which_it_begins() -> None:
    assert found("one\n\ntwo, and three is\nno four\n") == [("is no X", 3)]


def test_what_is_allowed_is_there() -> None:
    texts = dict(read_files())
    names = {phrase.name: phrase for phrase in PHRASES}
    for file, phrase in ALLOWED:
        assert list(occurrences("another", texts[file], [names[phrase]])), f"nothing in {file} needs to be allowed"
