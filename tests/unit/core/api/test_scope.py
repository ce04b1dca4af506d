"""Which namespaces an operator serves, and what others can read of that in its Lease."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpjob_core.api.scope import MOST_NAMESPACES, SCOPE_ANNOTATION, Scope, ScopeError, names_of, scope_of_lease

NAMES = st.sampled_from(["a", "b", "team-a", "team-b", "namespaces", "0"])
SCOPES = st.one_of(st.just(Scope()), st.frozensets(NAMES, min_size=1).map(Scope))
MANY = [f"team-{number}" for number in range(MOST_NAMESPACES + 1)]


@pytest.mark.parametrize(
    ("flags", "namespaces"),
    [
        ([], None),
        (["team-a"], {"team-a"}),
        (["team-a,team-b"], {"team-a", "team-b"}),
        (["team-a,team-b", "c"], {"team-a", "team-b", "c"}),
        (["9" * 63], {"9" * 63}),
        (MANY[1:], set(MANY[1:])),
    ],
)
def test_names_are_given_in_one_flag_or_in_several(flags: list[str], namespaces: set[str] | None) -> None:
    assert Scope.parse(flags).namespaces == namespaces


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([""], "a name is empty; leave the flag out to serve all namespaces"),
        (["team-a,"], "a name is empty"),
        (["team-a", ""], "a name is empty"),
        (["team-a, team-b"], "' team-b' is not a namespace's name: lower case"),
        (["Team"], "'Team' is not"),
        (["a.b"], "'a.b' is not"),
        (["-a"], "'-a' is not"),
        (["*"], "'*' is not"),
        (["a\n"], "'a\\n' is not"),
        (["a" * 64], "is not a namespace's name"),
        (["team-a,team-b", "team-a"], "'team-a' is given twice"),
        (MANY, f"{len(MANY)} namespaces are more than {MOST_NAMESPACES}: divide them"),
    ],
)
def test_a_wrong_list_is_refused_with_the_name_that_is_wrong(flags: list[str], message: str) -> None:
    with pytest.raises(ScopeError, match=re.escape(message)):
        Scope.parse(flags)


@given(SCOPES, SCOPES)
def test_two_scopes_share_a_lease_where_they_are_the_same_and_otherwise_never(one: Scope, other: Scope) -> None:
    assert (one.lease == other.lease) == (one == other)
    assert scope_of_lease(one.lease, one.annotations) == one


@given(SCOPES, SCOPES)
def test_what_two_scopes_have_in_common_is_what_both_watch(one: Scope, other: Scope) -> None:
    common = one.common(other)
    assert common == other.common(one)
    if None in one.watched:
        assert common == other
    elif None in other.watched:
        assert common == one
    else:
        assert set(common.watched if common else ()) == set(one.watched) & set(other.watched)


def test_the_lease_of_one_namespace_and_that_of_all_have_the_names_that_older_operators_know() -> None:
    assert (Scope().lease, Scope.of("team-a").lease) == ("ddpjob-operator", "ddpjob-operator.team-a")
    assert Scope().annotations == Scope.of("team-a").annotations == {}
    several = Scope.of("team-b", "team-a")
    assert several.annotations == {SCOPE_ANNOTATION: "team-a,team-b"}
    assert several.lease == "ddpjob-operator.namespaces.183efbe2b206205ba686ddb86f001bd0"


@pytest.mark.parametrize(
    ("name", "annotations"),
    [
        (Scope.of("a", "b").lease, None),
        (Scope.of("a", "b").lease, {}),
        (Scope.of("a", "b").lease, {SCOPE_ANNOTATION: "a"}),
        (Scope.of("a", "b").lease, {SCOPE_ANNOTATION: "a,c"}),
        (Scope.of("a", "b").lease, {SCOPE_ANNOTATION: "a,b,a"}),
        (Scope.of("a", "b").lease, {SCOPE_ANNOTATION: 5}),
        # As much as an annotation holds.
        (Scope.of("a", "b").lease, {SCOPE_ANNOTATION: ",".join(f"n{number}" for number in range(40_000))}),
        (Scope.of("a", "b").lease, [SCOPE_ANNOTATION]),
        ("ddpjob-operator.", None),
        ("ddpjob-operator.namespaces.", {SCOPE_ANNOTATION: "a,b"}),
        ("another", None),
    ],
)
def test_a_lease_that_does_not_say_what_it_stands_for_is_unreadable(name: str, annotations: object) -> None:
    assert scope_of_lease(name, annotations) is None


def test_a_long_list_is_named_in_part() -> None:
    assert str(Scope()) == "all namespaces"
    assert str(Scope.of("a")) == "namespace a"
    assert str(Scope.of("b", "a")) == "namespaces a, b"
    assert names_of("abcd") == "a, b, c, d"
    assert names_of("abcde") == "a, b, c and 2 more"
