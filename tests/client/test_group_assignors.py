"""Properties of every assignor for any group."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.base.consumer_protocol import Subscription
from sparklog.base.ids import TopicPartition
from sparklog.client.assignors import ASSIGNORS, Assignor, Member
from sparklog.client.assignors.assignor import Assignments, PartitionCounts

Group = tuple[PartitionCounts, list[Member]]
TOPICS = ("a", "b", "c", "d")
EVERY = pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=lambda assignor: assignor.name)
STICKY = pytest.mark.parametrize(
    "assignor", [ASSIGNORS["sticky"], ASSIGNORS["cooperative-sticky"]], ids=lambda assignor: assignor.name
)

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9))
wishes = st.lists(st.sampled_from(TOPICS), max_size=4, unique=True)


def member(number: int, topics: list[str], owned: list[TopicPartition], generation: int, assignor: Assignor) -> Member:
    return Member(
        member_id=f"m{number}",
        subscription=Subscription(
            topics=topics,
            owned=owned if assignor.cooperative else (),
            generation=generation,
            user_data=assignor.user_data(owned, generation),
        ),
    )


def again(group: list[Member], assigned: Assignments, generation: int, assignor: Assignor) -> list[Member]:
    """The members of the next rebalance, with that assignment."""
    return [
        member(
            int(item.member_id[1:]),
            list(item.subscription.topics),
            assigned.get(item.member_id, []),
            generation,
            assignor,
        )
        for item in group
    ]


def settled(partitions: PartitionCounts, group: list[Member], assignor: Assignor, generation: int = 0) -> Assignments:
    """The final assignment: a cooperative assignor takes two rebalances."""
    first = assignor.assign(partitions, group)
    return assignor.assign(partitions, again(group, first, generation, assignor)) if assignor.cooperative else first


def check_complete(partitions: PartitionCounts, group: list[Member], assigned: Assignments) -> None:
    """Each partition with subscribers has one of them as its owner; every member has an entry."""
    wanted = {topic for item in group for topic in item.subscription.topics}
    expected = {TopicPartition(topic, n) for topic in wanted & partitions.keys() for n in range(partitions[topic])}
    given_out = [partition for found in assigned.values() for partition in found]
    assert sorted(given_out) == sorted(expected)
    assert assigned.keys() == {item.member_id for item in group}
    topics = {item.member_id: item.subscription.topics for item in group}
    assert all(partition.topic in topics[member_id] for member_id, found in assigned.items() for partition in found)


@EVERY
@settings(max_examples=30)
@given(partitions=counts, topics=st.lists(wishes, min_size=1, max_size=6))
def test_every_partition_goes_to_exactly_one_member_that_wants_it(assignor, partitions, topics) -> None:
    group = [member(number, wish, [], -1, assignor) for number, wish in enumerate(topics)]

    check_complete(partitions, group, assignor.assign(partitions, group))


@EVERY
@settings(max_examples=30)
@given(partitions=counts, size=st.integers(1, 7))
def test_members_that_want_the_same_get_as_much_as_each_other(assignor, partitions, size) -> None:
    group = [member(number, list(TOPICS), [], -1, assignor) for number in range(size)]

    assigned = assignor.assign(partitions, group)

    if assignor.name == "range":  # even within each topic
        for topic in partitions:
            shares = [sum(item.topic == topic for item in found) for found in assigned.values()]
            assert max(shares) - min(shares) <= 1
    else:
        shares = [len(found) for found in assigned.values()]
        assert max(shares) - min(shares) <= 1


@STICKY
@settings(max_examples=30)
@given(partitions=counts, topics=st.lists(wishes, min_size=1, max_size=6))
def test_sticky_leaves_nobody_with_two_more_than_one_who_could_have_one_of_them(assignor, partitions, topics) -> None:
    group = [member(number, wish, [], -1, assignor) for number, wish in enumerate(topics)]

    assigned = assignor.assign(partitions, group)

    for more in group:
        for less in group:
            relief = {item.topic for item in assigned[more.member_id]} & set(less.subscription.topics)
            if relief:
                assert len(assigned[more.member_id]) - len(assigned[less.member_id]) <= 1


@STICKY
@settings(max_examples=30)
@given(partitions=counts, topics=st.lists(wishes, min_size=1, max_size=6))
def test_sticky_changes_nothing_while_nothing_has_changed(assignor, partitions, topics) -> None:
    group = [member(number, wish, [], -1, assignor) for number, wish in enumerate(topics)]
    before = settled(partitions, group, assignor)

    assert assignor.assign(partitions, again(group, before, 1, assignor)) == before


@STICKY
@settings(max_examples=30)
@given(partitions=counts, size=st.integers(2, 7), gone=st.integers(0, 6))
def test_who_stays_keeps_everything_when_another_leaves(assignor, partitions, size, gone) -> None:
    group = [member(number, list(TOPICS), [], -1, assignor) for number in range(size)]
    before = settled(partitions, group, assignor)
    left = [item for item in again(group, before, 1, assignor) if item.member_id != f"m{gone % size}"]

    after = settled(partitions, left, assignor, 2)

    check_complete(partitions, left, after)
    assert all(set(before[item.member_id]) <= set(after[item.member_id]) for item in left)


@STICKY
@settings(max_examples=30)
@given(partitions=counts, size=st.integers(1, 6))
def test_a_new_member_gets_its_share_and_no_more_moves_than_that(assignor, partitions, size) -> None:
    group = [member(number, list(TOPICS), [], -1, assignor) for number in range(size)]
    before = settled(partitions, group, assignor)
    joining = member(size, list(TOPICS), [], -1, assignor)

    after = settled(partitions, [*again(group, before, 1, assignor), joining], assignor, 2)

    moved = [item for found in before.values() for item in found if item not in after_of(before, after, item)]
    assert len(moved) == len(after[joining.member_id])


def after_of(before: Assignments, after: Assignments, partition: TopicPartition) -> list[TopicPartition]:
    """The new assignment of the partition's former member."""
    return next(after[member_id] for member_id, found in before.items() if partition in found)


@settings(max_examples=30)
@given(partitions=counts, data=st.data())
def test_cooperative_never_assigns_what_another_still_reads_and_settles_in_two_rounds(partitions, data) -> None:
    assignor = ASSIGNORS["cooperative-sticky"]
    everything = [TopicPartition(topic, n) for topic, count in partitions.items() for n in range(count)]
    size = data.draw(st.integers(1, 5))
    readers = data.draw(st.lists(st.integers(0, size - 1), min_size=len(everything), max_size=len(everything)))
    reads: dict[int, list[TopicPartition]] = {number: [] for number in range(size)}
    for partition, number in zip(everything, readers, strict=True):
        reads[number].append(partition)
    group = [member(number, list(TOPICS), owned, 3, assignor) for number, owned in reads.items()]
    joining = member(size, list(TOPICS), [], -1, assignor)

    first = assignor.assign(partitions, [*group, joining])
    second = assignor.assign(partitions, again([*group, joining], first, 4, assignor))

    for number, owned in reads.items():
        assert set(first[f"m{number}"]) <= set(owned)
        assert set(first[f"m{number}"]) <= set(second[f"m{number}"])
    assert first[joining.member_id] == []
    check_complete(partitions, [*group, joining], second)
    shares = sorted(len(found) for found in second.values())
    assert all(more - less <= 1 for less, more in pairwise((shares[0], shares[-1])))


@STICKY
def test_of_two_that_claim_a_partition_the_later_generation_has_it(assignor) -> None:
    contested = [TopicPartition("a", 0)]
    group = [
        member(0, ["a"], contested, 1, assignor),
        member(1, ["a"], contested, 2, assignor),
    ]
    if assignor.cooperative:  # nobody may have it while two say that they read it
        assert assignor.assign({"a": 1}, group) == {"m0": [], "m1": []}
    else:
        assert assignor.assign({"a": 1}, group) == {"m0": [], "m1": contested}


def test_range_keeps_partitions_with_the_same_number_together() -> None:
    group = [member(number, ["a", "b"], [], -1, ASSIGNORS["range"]) for number in range(2)]

    assigned = ASSIGNORS["range"].assign({"a": 3, "b": 3}, group)

    assert assigned["m0"] == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert assigned["m1"] == [("a", 2), ("b", 2)]


def test_roundrobin_deals_over_topics() -> None:
    group = [member(number, ["a", "b"], [], -1, ASSIGNORS["roundrobin"]) for number in range(2)]

    assigned = ASSIGNORS["roundrobin"].assign({"a": 3, "b": 3}, group)

    assert assigned["m0"] == [("a", 0), ("a", 2), ("b", 1)]
    assert assigned["m1"] == [("a", 1), ("b", 0), ("b", 2)]


def test_sticky_relieves_along_a_chain_of_members() -> None:
    """m0 can give only to m1, and m1 only to m2."""
    assignor = ASSIGNORS["sticky"]
    group = [
        member(0, ["a"], [TopicPartition("a", number) for number in range(3)], 1, assignor),
        member(1, ["a", "b"], [TopicPartition("b", 0), TopicPartition("b", 1)], 1, assignor),
        member(2, ["b"], [TopicPartition("b", 2)], 1, assignor),
    ]

    shares = Counter({name: len(found) for name, found in assignor.assign({"a": 3, "b": 3}, group).items()})

    assert shares == {"m0": 2, "m1": 2, "m2": 2}
