"""Plans for an even spread of replicas."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.base.errors import InvalidReplicationFactor
from sparklog.base.ids import TopicPartition
from sparklog.controller.spreading import spread


def names(*replicas: tuple[int, ...]) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition("t", number): each for number, each in enumerate(replicas)}


def test_a_balanced_assignment_stays() -> None:
    assert spread(names((1, 2), (2, 3), (3, 1)), dict.fromkeys((1, 2, 3), "")) == {}


def test_a_broker_that_leaves_is_replaced_in_its_place_and_nothing_else_moves() -> None:
    current = names((1, 2), (2, 3), (3, 1), (4, 1))
    assert spread(current, dict.fromkeys((1, 2, 3), ""), even=False) == {TopicPartition("t", 3): (2, 1)}


def test_brokers_in_racks_with_a_replica_are_skipped() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    assert spread(names((9, 1)), racks, even=False) == names((3, 1))


def test_new_brokers_get_their_share() -> None:
    current = names(*[(1, 2)] * 6)
    moved = current | spread(current, dict.fromkeys((1, 2, 3, 4), ""))
    assert set(Counter(broker for replicas in moved.values() for broker in replicas).values()) == {3}
    preferred = Counter(replicas[0] for replicas in moved.values())
    assert max(preferred.values()) - min(preferred[broker] for broker in (1, 2, 3, 4)) <= 1


def test_replicas_are_added_and_taken_away() -> None:
    current = names((1,), (2,))
    assert {len(replicas) for replicas in spread(current, dict.fromkeys((1, 2, 3), ""), factor=2).values()} == {2}
    assert spread(names((1, 2, 3)), dict.fromkeys((1, 2, 3), ""), factor=1) == names((1,))
    with pytest.raises(InvalidReplicationFactor):
        spread(current, {1: ""}, factor=2)


@settings(max_examples=30)
@given(
    current=st.dictionaries(
        st.builds(TopicPartition, st.just("t"), st.integers(0, 20)),
        st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True),
        max_size=12,
    ),
    racks=st.dictionaries(st.integers(1, 9), st.sampled_from(["", "a", "b"]), min_size=3, max_size=7),
    even=st.booleans(),
)
def test_every_plan_can_be_carried_out(
    current: dict[TopicPartition, list[int]], racks: dict[int, str], even: bool
) -> None:
    moved = {name: tuple(replicas) for name, replicas in current.items()} | spread(current, racks, even=even)
    load = Counter(broker for replicas in moved.values() for broker in replicas)
    for name, replicas in moved.items():
        assert len(set(replicas)) == len(replicas) == len(current[name])
        assert set(replicas) <= racks.keys()
    if even and not any(racks.values()) and moved:
        assert max(load[broker] for broker in racks) - min(load[broker] for broker in racks) <= 1
