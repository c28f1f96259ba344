"""What requests cost per byte, of every API of both listeners: those that were found to cost most, and a search for
worse ones. Processor time is looked at by the search alone, in soaks: other processes can make it a multiple.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from random import Random

import pytest

from sparklog.group.coordinator import GroupCoordinator
from sparklog.group.requests import ListGroups, ListGroupsResponse
from support.brokers.most_calls import MOST_CALLS
from support.fuzzing.listeners import Subject, subjects
from support.fuzzing.search import LARGE_BYTES, MOST_US_PER_BYTE, Brokers, Found, confirm, excess, search
from support.fuzzing.shapes import Shape
from support.runs.seeds import SEED

pytestmark = pytest.mark.slow
SUBJECTS = subjects()
SEARCHED_S = 3
SEARCHES = 20
SEARCH_S = 10
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
    ("Produce", "v9 s1 header/tags*100000alike"),
    ("Produce", "v9 s1 topic_data*100alike topic_data/tags*1000alike"),
    ("Fetch", "v12 s1 header/tags*100000alike"),
    ("CreatePartitions", "v3 s1 topics*1known topics/count*500alike"),
    ("AddPartitionsToTxn", "v5 s934882 transactions*4000numbered"),
    ("WriteTxnMarkers", "v2 s81088 markers/topics/partition_indexes*4000numbered"),
    ("DescribeTransactions", "v0 s374936 transactional_ids*8000numbered"),
    ("Transactions.DescribeTransactions", "v0 s771157 transactional_ids*8000numbered"),
]
"""Of each kind, what a search found to cost most."""
WORST_OF_FULL = [
    ("DescribeGroups", "v5 s1 groups*100same"),
    ("OffsetFetch", "v8 s1 groups*100same"),
    ("DescribeProducers", "v0 s1 topics*10same topics/partition_indexes*50same"),
    ("Metadata", "v12 s3 topics*2000same"),
    ("DeleteTopics", "v5 s1 topic_names*1same"),
    ("DescribeTransactions", "v0 s374936 transactional_ids*500same"),
]
"""The same of brokers that have been in use."""
MOST_CALLS_PER_BYTE = 50
"""Three times as many as the worst of them."""


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    found = Brokers()
    yield found
    found.close()
    gc.collect()
    gc.freeze()  # again what stays until the end of all tests


@pytest.fixture(scope="module")
def full_brokers() -> Iterator[Brokers]:
    found = Brokers(is_full=True)
    yield found
    found.close()


@pytest.mark.parametrize(("name", "shape"), WORST, ids=[name for name, _ in WORST])
def test_no_request_costs_more_than_its_bytes_are_worth(brokers: Brokers, name: str, shape: str) -> None:
    subject, worst = SUBJECTS[name], Shape.parse(shape)
    # Again where it seems too much: the first request of a kind does what is done once in a process.
    assert not too_many_calls(brokers, subject, worst) or not too_many_calls(brokers, subject, worst)


def test_a_handler_that_compares_all_with_all_is_found(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    subject, list_groups = SUBJECTS["ListGroups"], GroupCoordinator.list

    async def planted(self: GroupCoordinator, request: ListGroups) -> ListGroupsResponse:
        assert sum(one == other for one in request.states for other in request.states for _ in range(64)) >= 0
        return await list_groups(self, request)

    def finds(seed: int) -> Shape | None:
        found = filter(costs_too_much, search(subject, brokers, Random(seed), SEARCH_S, until=costs_too_much))
        return next((each.shape for each in found if too_many_calls(brokers, subject, each.shape)), None)

    with monkeypatch.context() as patched:
        patched.setattr(GroupCoordinator, "list", planted)
        # A busy machine may stop a search early: at a request that took long, and costs little.
        worst = next(filter(None, map(finds, range(SEARCHES))), None)
    assert worst
    assert not too_many_calls(brokers, subject, worst)


def too_many_calls(brokers: Brokers, subject: Subject, shape: Shape) -> str:
    """The excess of a request in calls of functions, whose number is the same on any machine."""
    size, most = brokers.count_calls(subject, shape)
    told = []
    if most.total > MOST_CALLS_PER_BYTE * max(size, LARGE_BYTES):
        told.append(f"{most.total} calls, of {size} bytes: at most {MOST_CALLS_PER_BYTE} per byte")
    if most.calls > MOST_CALLS:
        told.append(f"{most.calls} calls in one turn, {most.what}: at most {MOST_CALLS}")
    return "; ".join(told)


def costs_too_much(found: Found) -> bool:
    return found.us_per_byte > MOST_US_PER_BYTE


@pytest.mark.soak_only
@pytest.mark.parametrize("name", SUBJECTS)
def test_no_search_finds_a_request_that_costs_too_much(full_brokers: Brokers, name: str) -> None:
    for found in search(SUBJECTS[name], full_brokers, Random(f"{SEED} {name}"), SEARCHED_S):
        if excess(found):
            assert not excess(confirm(SUBJECTS[name], full_brokers, found.shape))


@pytest.mark.soak_only
@pytest.mark.parametrize(("name", "shape"), WORST_OF_FULL, ids=[name for name, _ in WORST_OF_FULL])
def test_no_request_costs_a_full_broker_too_much(full_brokers: Brokers, name: str, shape: str) -> None:
    assert not excess(confirm(SUBJECTS[name], full_brokers, Shape.parse(shape)))
