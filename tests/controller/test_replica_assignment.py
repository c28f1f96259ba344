"""Assignment of new partitions to brokers, and assignments during a reassignment."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.base.errors import InvalidPartitions, InvalidReplicationFactor
from sparklog.cluster.model import ReplicaAssignment
from sparklog.controller.assignment import assign_more, assign_replicas

RACKLESS = dict.fromkeys(range(5), "")
IN_RACKS = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}


def test_replicas_go_round_the_brokers_with_a_growing_distance() -> None:
    """The table in the head of kafka.admin.AdminUtils."""
    assert assign_replicas(RACKLESS, 10, 3, start=0, shift=0) == (
        *((0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 0), (4, 0, 1)),
        *((0, 2, 3), (1, 3, 4), (2, 4, 0), (3, 0, 1), (4, 1, 2)),
    )


def test_racks_alternate_and_each_replica_is_in_another() -> None:
    """The example in the head of kafka.admin.AdminUtils."""
    assert assign_replicas(IN_RACKS, 7, 3, start=0, shift=0) == (
        *((0, 3, 1), (3, 1, 5), (1, 5, 4), (5, 4, 2), (4, 2, 0), (2, 0, 3)),
        (0, 4, 2),
    )


def test_impossible_assignments_are_refused() -> None:
    with pytest.raises(InvalidReplicationFactor, match="Replication factor: 6 larger than available brokers: 5") as new:
        assign_replicas(RACKLESS, 1, 6, start=0, shift=0)
    assert str(new.value).startswith(
        "Unable to replicate the partition 6 time(s): The target replication factor of 6 cannot be reached because "
        "only 5 broker(s) are registered. "
    )
    with pytest.raises(InvalidReplicationFactor, match=r"^Replication factor must be larger than 0, or -1 to use the"):
        assign_replicas(RACKLESS, 1, 0, start=0, shift=0)
    with pytest.raises(InvalidPartitions, match=r"^Number of partitions was set to an invalid non-positive value\.$"):
        assign_replicas(RACKLESS, 0, 1, start=0, shift=0)


def test_racks_that_only_some_brokers_name_do_not_count() -> None:
    assert assign_replicas({0: "a", 1: ""}, 2, 2, start=0, shift=0) == ((0, 1), (1, 0))


@pytest.mark.parametrize("there", [1, 4, 5, 6, 11])
def test_partitions_that_are_added_are_those_that_would_have_come_next(there: int) -> None:
    every = assign_replicas(RACKLESS, 14, 3, start=2, shift=2)
    grown = assign_more(RACKLESS, 14 - there, existing=every[:there], random_start=0)

    assert [replicas[0] for replicas in grown] == [replicas[0] for replicas in every[there:]]
    assert {len(set(replicas)) for replicas in grown} == {3}


@settings(max_examples=30)
@given(
    racks=st.dictionaries(st.integers(0, 30), st.sampled_from("abc"), min_size=1, max_size=9),
    partitions=st.integers(1, 40),
    factor=st.integers(1, 9),
    start=st.integers(0, 100),
    shift=st.integers(0, 100),
)
def test_every_assignment_is_even_and_over_as_many_racks_as_can_be(
    racks: dict[int, str], partitions: int, factor: int, start: int, shift: int
) -> None:
    factor = min(factor, len(racks))
    assigned = assign_replicas(racks, partitions, factor, start=start, shift=shift)

    assert len(assigned) == partitions
    for replicas in assigned:
        assert len(set(replicas)) == factor
        assert len({racks[broker] for broker in replicas}) == min(factor, len(set(racks.values())))
    preferred = Counter(replicas[0] for replicas in assigned)
    assert max(preferred.values()) - min(preferred[broker] for broker in racks) <= 1


REPLICAS = st.lists(st.integers(1, 6), min_size=1, max_size=4, unique=True).map(tuple)


def test_a_reassignment_lists_its_target_first() -> None:
    moving = ReplicaAssignment(replicas=(1, 2, 3)).reassign_to((4, 2, 5))

    assert moving == ReplicaAssignment(replicas=(4, 2, 5, 1, 3), adding=(4, 5), removing=(1, 3))
    assert (moving.target, moving.origin, moving.is_reassigning) == ((4, 2, 5), (2, 1, 3), True)


@settings(max_examples=30)
@given(first=REPLICAS, targets=st.lists(REPLICAS, min_size=1, max_size=4))
def test_however_often_it_is_redirected_the_way_back_is_known(
    first: tuple[int, ...], targets: list[tuple[int, ...]]
) -> None:
    moving = ReplicaAssignment(replicas=first)
    for target in targets:
        moving = moving.reassign_to(target)
        assert moving.target == target
        assert set(moving.origin) == set(first)
        assert set(moving.adding) == set(target) - set(first)
        assert set(moving.removing) == set(first) - set(target)

    reverted = moving.reassign_to(moving.origin)
    assert set(reverted.replicas) == set(first)
    assert not reverted.is_reassigning
