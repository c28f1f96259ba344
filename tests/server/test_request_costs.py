"""What requests cost per byte, of every API of both listeners: those that were found to cost most, and a search for
worse ones.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from random import Random

import pytest

from sparklog.group.coordinator import GroupCoordinator
from sparklog.group.requests import ListGroups, ListGroupsResponse
from support.fuzzing.listeners import subjects
from support.fuzzing.search import MOST_US_PER_BYTE, Brokers, Found, confirm, excess, search
from support.fuzzing.shapes import Shape
from support.patience import PATIENCE_S
from support.runs.seeds import SEED

pytestmark = pytest.mark.slow
SUBJECTS = subjects()
SEARCHED_S = 3
WORST = [
    ("DeleteGroups", "v0 s773708 groups_names*8000numbered"),
    ("DescribeGroups", "v5 s1 groups*100numbered groups/each*30000alike"),
    ("DescribeUserScramCredentials", "v0 s546944 users*4000numbered"),
    ("AlterUserScramCredentials", "v0 s601959 upsertions*500numbered"),
    ("DescribeProducers", "v0 s36314 topics/partition_indexes*4000numbered"),
    ("DescribeProducers", "v0 s1 topics*1numbered topics/name*30000alike topics/partition_indexes*3000numbered"),
    ("AlterPartitionReassignments", "v0 s1 topics*1numbered topics/name*30000alike topics/partitions*5000numbered"),
    ("DescribeTopicPartitions", "v0 s769492 topics*2000numbered"),
    ("Log.ListOffsets", "v0 s515007 partitions*1000numbered"),
    ("Groups.Heartbeat", "v0 s1 group_id*4000000alike"),
    ("Groups.DescribeGroups", "v0 s328938 group_ids*32000numbered"),
    ("Admin.DescribeTopics", "v0 s135609 names*4000numbered"),
]
"""Of each kind, what a search found to cost most."""


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    found = Brokers()
    yield found
    found.close()
    gc.collect()
    gc.freeze()  # again what stays until the end of all tests


@pytest.mark.parametrize(("name", "shape"), WORST, ids=[name for name, _ in WORST])
def test_no_request_costs_more_than_its_bytes_are_worth(brokers: Brokers, name: str, shape: str) -> None:
    subject, worst = SUBJECTS[name], Shape.parse(shape)
    cost = brokers.measure(subject, worst)
    assert cost
    if excess(Found(name, worst, cost)):  # it may be what other requests have left behind, or the first of its kind
        assert not excess(confirm(subject, brokers, worst))


def test_a_handler_that_compares_all_with_all_is_found(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    subject, list_groups = SUBJECTS["ListGroups"], GroupCoordinator.list

    async def planted(self: GroupCoordinator, request: ListGroups) -> ListGroupsResponse:
        assert sum(one == other for one in request.states for other in request.states for _ in range(64)) >= 0
        return await list_groups(self, request)

    with monkeypatch.context() as patched:
        patched.setattr(GroupCoordinator, "list", planted)
        found = search(subject, brokers, Random(0), PATIENCE_S, until=costs_too_much)

    [worst] = filter(costs_too_much, found)
    assert "of processor time per byte" in excess(worst)
    assert not excess(confirm(subject, brokers, worst.shape))


def costs_too_much(found: Found) -> bool:
    return found.us_per_byte > MOST_US_PER_BYTE


@pytest.mark.soak_only
@pytest.mark.parametrize("name", SUBJECTS)
def test_no_search_finds_a_request_that_costs_too_much(brokers: Brokers, name: str) -> None:
    for found in search(SUBJECTS[name], brokers, Random(f"{SEED} {name}"), SEARCHED_S):
        if excess(found):
            assert not excess(confirm(SUBJECTS[name], brokers, found.shape))
