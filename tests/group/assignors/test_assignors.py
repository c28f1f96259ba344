"""Server-side assignors: complete, to subscribers only, balanced, deterministic; uniform moves as little as it can."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.group.assignors import ASSIGNORS, GroupSpec
from sparklog.group.assignors.spec import MemberSpec

TOPICS = [UUID(int=number) for number in range(1, 6)]
members = st.dictionaries(st.sampled_from("abcdefgh"), st.frozensets(st.sampled_from(TOPICS)), max_size=8)
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), max_size=5)


def spec_of(subscriptions, partition_counts, target=None):
    target = target or {}
    return GroupSpec(
        members={m: MemberSpec(topics=topics, partitions=target.get(m, {})) for m, topics in subscriptions.items()},
        partition_counts=partition_counts,
    )


def owners(result):
    return {(t, p): m for m, topics in result.items() for t, partitions in topics.items() for p in partitions}


def sizes(result):
    return {m: sum(map(len, topics.values())) for m, topics in result.items()}


@pytest.mark.parametrize("name", ASSIGNORS)
@given(subscriptions=members, partition_counts=counts)
def test_every_partition_goes_to_one_subscriber_of_its_topic(name, subscriptions, partition_counts):
    result = ASSIGNORS[name](spec_of(subscriptions, partition_counts))
    assert result.keys() == subscriptions.keys()
    assert all(topic in subscriptions[member] for (topic, _), member in owners(result).items())
    subscribed = frozenset().union(*subscriptions.values())
    expected = {(t, p) for t, count in partition_counts.items() if t in subscribed for p in range(count)}
    assert owners(result).keys() == expected
    assert sum(sizes(result).values()) == len(expected)


@given(subscriptions=members, partition_counts=counts)
def test_uniform_leaves_no_move_that_would_even_things_out(subscriptions, partition_counts):
    result = ASSIGNORS["uniform"](spec_of(subscriptions, partition_counts))
    size = sizes(result)
    for (topic, _), member in owners(result).items():
        assert all(size[member] <= size[other] + 1 for other in subscriptions if topic in subscriptions[other])


@given(names=st.sets(st.sampled_from("abcdefgh"), min_size=1), partition_counts=counts)
def test_uniform_sizes_differ_by_one_where_all_have_the_same_subscription(names, partition_counts):
    result = ASSIGNORS["uniform"](spec_of(dict.fromkeys(names, frozenset(TOPICS)), partition_counts))
    assert max(sizes(result).values()) - min(sizes(result).values()) <= 1


@pytest.mark.parametrize("name", ASSIGNORS)
@given(subscriptions=members, partition_counts=counts)
def test_assigning_again_changes_nothing(name, subscriptions, partition_counts):
    first = ASSIGNORS[name](spec_of(subscriptions, partition_counts))
    assert ASSIGNORS[name](spec_of(subscriptions, partition_counts, first)) == first


@given(names=st.sets(st.sampled_from("abcdefgh"), min_size=2), partition_counts=counts, data=st.data())
def test_uniform_moves_only_the_partitions_of_a_member_that_leaves(names, partition_counts, data):
    subscriptions = dict.fromkeys(names, frozenset(TOPICS))
    before = ASSIGNORS["uniform"](spec_of(subscriptions, partition_counts))
    gone = data.draw(st.sampled_from(sorted(names)))
    del subscriptions[gone]
    after = owners(ASSIGNORS["uniform"](spec_of(subscriptions, partition_counts, before)))
    assert {tp for tp, member in owners(before).items() if after[tp] != member} == {
        tp for tp, member in owners(before).items() if member == gone
    }


@pytest.mark.slow
@given(names=st.sets(st.sampled_from("abcdefgh"), min_size=1, max_size=7), partition_counts=counts)
def test_uniform_moves_partitions_only_to_a_member_that_joins(names, partition_counts):
    subscriptions = dict.fromkeys(names, frozenset(TOPICS))
    before = ASSIGNORS["uniform"](spec_of(subscriptions, partition_counts))
    after = owners(ASSIGNORS["uniform"](spec_of({**subscriptions, "new": frozenset(TOPICS)}, partition_counts, before)))
    assert {after[tp] for tp, member in owners(before).items() if after[tp] != member} <= {"new"}


def test_range_gives_runs_and_puts_equal_partitions_of_equal_topics_together():
    subscriptions = dict.fromkeys("abc", frozenset(TOPICS[:2]))
    result = ASSIGNORS["range"](spec_of(subscriptions, {TOPICS[0]: 7, TOPICS[1]: 7}))
    assert [sorted(result[m][TOPICS[0]]) for m in "abc"] == [[0, 1, 2], [3, 4], [5, 6]]
    assert all(result[m][TOPICS[0]] == result[m][TOPICS[1]] for m in "abc")


def test_range_orders_static_members_first_by_their_instance_ids():
    members = {
        "a": MemberSpec(topics=frozenset(TOPICS[:1])),
        "b": MemberSpec(topics=frozenset(TOPICS[:1]), instance_id="z"),
        "c": MemberSpec(topics=frozenset(TOPICS[:1]), instance_id="y"),
    }
    result = ASSIGNORS["range"](GroupSpec(members=members, partition_counts={TOPICS[0]: 3}))
    assert owners(result) == {(TOPICS[0], 0): "c", (TOPICS[0], 1): "b", (TOPICS[0], 2): "a"}


def test_a_topic_that_does_not_exist_is_left_out():
    result = ASSIGNORS["uniform"](spec_of({"a": frozenset(TOPICS[:2])}, {TOPICS[0]: 2}))
    assert result == {"a": {TOPICS[0]: {0, 1}}}
