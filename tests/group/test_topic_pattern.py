"""Regular expressions over topic names: as Python's where both know them, refused where RE2 refuses, always linear."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.base.errors import InvalidRegularExpression
from sparklog.group.topic_pattern import TopicPattern

NAMES = ["orders", "orders-1", "orders.eu", "payments", "a", "aaa", "ab12", "_x", "ORDERS", "a-b", "__consumer_offsets"]


@pytest.mark.parametrize(
    "pattern",
    [
        "orders.*", "^orders$", "orders", "(orders|payments).*", "a{2,3}", "[a-c]+[0-9]*", "[^o].*", r"\w+", r"a\b.b",
        "(?i)orders", "(?i:or)ders", r"ab\d{2}", r"orders\..*", "(?P<x>a)+?", "a|", "", ".*-.*", r"a\B..*", r"\S+",
        "(?:a|b)*12?", r"[\w.]+", "x*$",
    ],
)  # fmt: skip
def test_matches_what_a_full_match_of_python_matches(pattern):
    compiled = TopicPattern(pattern)
    assert [n for n in NAMES if compiled.matches(n)] == [n for n in NAMES if re.fullmatch(pattern, n)]


atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "^", "$", r"\b", r"\w", "-"])
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}"])).map(lambda p: f"(?:{p[0]}){p[1]}"),
    ),
    max_leaves=6,
)


@given(pattern=patterns, name=st.text("ab-", min_size=1, max_size=6))
def test_agrees_with_python(pattern, name):
    assert TopicPattern(pattern).matches(name) == bool(re.fullmatch(pattern, name))


@pytest.mark.parametrize(
    "pattern",
    ["(", "[a", "a**", r"(a)\1", "(?=a)", "(?<!a)b", "(?>a)", "a++", "a{1001}", "(((a{100}){100}){100})",
     "((((a{9}){10}){10}){10}){10}", "x" * 5000, "(" * 4000 + ")" * 4000, r"(\pL{100}){10}"],
)  # fmt: skip
def test_refuses_what_re2_refuses(pattern):
    with pytest.raises(InvalidRegularExpression):
        TopicPattern(pattern)


def test_an_expression_that_makes_python_backtrack_is_answered_at_once():
    assert not TopicPattern("(a+)+b").matches("a" * 249)
    assert not TopicPattern("(a|aa)*(a|aa)*c").matches("a" * 249)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [(r"\Qa.b\E.*", "a.bc"), (r"\Aab\z", "ab"), (r"\Qa.b", "a.b"), (r"\pL\PL[[:alpha:]]", "a.b")],
)
def test_knows_the_spellings_of_re2(pattern, name):
    assert TopicPattern(pattern).matches(name)
    assert not TopicPattern(pattern).matches("axb")
