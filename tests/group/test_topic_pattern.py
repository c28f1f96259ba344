"""Regular expressions over topic names: as Python's where both know them, refused where RE2 refuses, always linear."""

from __future__ import annotations

import asyncio
import re
import resource
from unittest.mock import Mock
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.base import pattern as engine
from sparklog.base.errors import InvalidRegularExpression
from sparklog.base.pattern import Pattern
from sparklog.group.requests import ConsumerGroupHeartbeat
from sparklog.group.shard import GroupShard
from sparklog.group.topic_pattern import match
from sparklog.runtime import slices
from sparklog.runtime.slices import Slices
from support.groups.consumer_group import AT_ONCE, FakeTopics

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
    compiled = Pattern(pattern)
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
    assert Pattern(pattern).matches(name) == bool(re.fullmatch(pattern, name))


@pytest.mark.parametrize(
    "pattern",
    ["(", "[a", "a**", r"(a)\1", "(?=a)", "(?<!a)b", "(?>a)", "a++", "a{1001}", "(((a{100}){100}){100})",
     "((((a{9}){10}){10}){10}){10}", "x" * 5000, "(" * 4000 + ")" * 4000, r"(\pL{100}){10}",
     r"\p{Greek}" * 21,
     "|".join(["(?:[a-h]?){800}_"] * 10)],
)  # fmt: skip
def test_refuses_what_re2_refuses(pattern):
    with pytest.raises(InvalidRegularExpression):
        Pattern(pattern)


def test_capture_groups_take_little_memory() -> None:
    """RE2 would keep a position of each group for each instruction: 128 MB."""
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert Pattern("(" * 2_000 + "a" + ")" * 2_000).matches("a")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 16 << 10


def test_classes_of_unicode_are_counted_before_they_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = Mock()
    monkeypatch.setattr(engine.re2, "compile", compiled)
    with pytest.raises(InvalidRegularExpression, match="21 classes of Unicode, the limit is 20"):
        Pattern(r"\pL" * 11 + r"[a\PL]" * 10)
    assert not compiled.called


def test_an_expression_that_makes_python_backtrack_is_answered_at_once():
    assert not Pattern("(a+)+b").matches("a" * 249)
    assert not Pattern("(a|aa)*(a|aa)*c").matches("a" * 249)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [(r"\Qa.b\E.*", "a.bc"), (r"\Aab\z", "ab"), (r"\Qa.b", "a.b"), (r"\pL\PL[[:alpha:]]", "a.b")],
)
def test_knows_the_spellings_of_re2(pattern, name):
    assert Pattern(pattern).matches(name)
    assert not Pattern(pattern).matches("axb")


async def test_other_tasks_run_while_expressions_are_matched(monkeypatch):
    monkeypatch.setattr(slices, "SLICE_S", 0)
    turns = 0

    async def take_turns():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    topics = FakeTopics(**{f"t{number}": 1 for number in range(100)})
    others = asyncio.create_task(take_turns())
    found = await match(["t.*", "t1?7", "("], topics, Slices())
    others.cancel()
    assert turns >= 200
    assert found.topics.keys() == {"t.*", "t1?7"}
    assert found.topics["t1?7"] == ["t17", "t7"]


def test_an_expression_is_matched_once_with_the_same_topics():
    world = ShardWorld(topics=FakeTopics(orders=1))
    for name, text in (("a", "o.*"), ("b", "p.*"), ("c", "o.*")):
        asked = world.shard.to_match("g", text)
        assert asked == ([text] if name != "c" else [])
        world.join(name, text)
    world.topics.put("pages", 1)
    assert world.shard.to_match("g", None) == ["o.*", "p.*"]
    world.join("d", "")
    assert world.shard.to_match("g", None) == []


class ShardWorld:
    def __init__(self, topics):
        self.topics = topics
        self.shard = GroupShard(AT_ONCE, topics, lambda: UUID(int=1))

    def join(self, name, text):
        request = ConsumerGroupHeartbeat(
            group_id="g", member_id=name, member_epoch=0, client_id="c", client_host="/h", rebalance_timeout_ms=1000,
            owned_partitions=[], subscribed_topic_names=[], subscribed_topic_regex=text,
        )  # fmt: skip
        matches = asyncio.run(match(self.shard.to_match("g", text), self.topics, Slices()))
        for record in self.shard.consumer_heartbeat(request, 0, matches).records:
            self.shard.replay(record)
