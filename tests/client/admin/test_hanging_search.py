"""The search for hanging transactions, with answers of fake brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

from sparklog.base.clock import Clock
from sparklog.base.errors import UnknownTopicOrPartition
from sparklog.base.ids import TopicPartition
from sparklog.client import Admin
from sparklog.client.admin.hanging_transactions import HangingTransactions, search
from sparklog.client.admin.transaction_descriptions import ProducerDescription, TransactionDescription
from sparklog.client.admin.transactions import Progress, TransactionAdmin
from sparklog.client.connection import Connection
from sparklog.testing import start_broker
from sparklog.testing.sim.clock import SimClock
from sparklog.v1 import admin_pb2

pytestmark = pytest.mark.slow

NOW_MS = 10_000_000
LIMIT_MS = 900_000
A, B, C = (TopicPartition("t", number) for number in range(3))


def producer(producer_id: int, *, silent_ms: int = LIMIT_MS + 1, first_offset: int = 5) -> ProducerDescription:
    return ProducerDescription(
        producer_id=producer_id,
        producer_epoch=1,
        last_sequence=3,
        last_timestamp_ms=NOW_MS - silent_ms,
        coordinator_epoch=0,
        transaction_first_offset=first_offset,
    )


def transaction(producer_id: int, *partitions: TopicPartition) -> TransactionDescription:
    return TransactionDescription(
        transactional_id=f"id-{producer_id}",
        coordinator=0,
        state="Ongoing",
        producer_id=producer_id,
        producer_epoch=1,
        timeout_ms=60_000,
        start_ms=1,
        partitions=partitions,
    )


class Answers(TransactionAdmin):
    """Scripted answers of leaders, one for each request, and of coordinators."""

    def __init__(
        self, *leaders: Mapping[TopicPartition, Sequence[ProducerDescription]], known: Iterable[TransactionDescription]
    ) -> None:
        self.leaders = iter(leaders)
        self.known = list(known)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], progress: Progress | None = None, *, omits_missing: bool = False
    ) -> dict[TopicPartition, tuple[ProducerDescription, ...]]:
        answer = next(self.leaders)
        return {name: tuple(answer.get(name, ())) for name in partitions}

    async def of_producers(self, producer_ids: Iterable[int]) -> list[TransactionDescription]:
        wanted = set(producer_ids)
        return [each for each in self.known if each.producer_id in wanted]


@pytest.fixture
def clock() -> Clock:
    return SimClock(NOW_MS)


def searched(answers: Answers, clock: Clock, leaders: Mapping[TopicPartition, int]) -> HangingTransactions:
    return asyncio.run(search(answers, clock, leaders, LIMIT_MS, None))


def test_a_transaction_hangs_if_its_coordinator_does_not_have_the_partition(clock: Clock) -> None:
    producers = {A: [producer(1), producer(2)], B: [producer(1), producer(3)]}
    known = [transaction(1, A), transaction(2)]
    found = searched(Answers(producers, producers, known=known), clock, {A: 0, B: 1}).found
    assert [(each.partition, each.producer.producer_id) for each in found] == [(A, 2), (B, 1), (B, 3)]


def test_young_transactions_and_producers_without_one_do_not_hang(clock: Clock) -> None:
    young = producer(1, silent_ms=LIMIT_MS)
    idle = producer(2, first_offset=-1)
    producers = {A: [young, idle]}
    assert searched(Answers(producers, producers, known=[]), clock, {A: 0}).found == ()


def test_a_transaction_that_ended_during_the_search_does_not_hang(clock: Clock) -> None:
    first = {A: [producer(1)], B: [producer(2)], C: [producer(3)]}
    later = {A: [producer(1, first_offset=-1)], B: [producer(2, silent_ms=0, first_offset=9)], C: [producer(3)]}
    found = searched(Answers(first, later, known=[]), clock, dict.fromkeys((A, B, C), 0)).found
    assert [each.partition for each in found] == [C]


def test_partitions_without_leader_are_named(clock: Clock) -> None:
    hanging = searched(Answers({}, {}, known=[]), clock, {A: 0, B: -1})
    assert (hanging.searched, hanging.without_leader) == ((A,), (B,))


@pytest.mark.parametrize("answers", [1, 2, 3, 4])
def test_a_topic_that_is_deleted_during_the_search_is_left_out(
    tmp_path, monkeypatch: pytest.MonkeyPatch, answers: int
) -> None:
    with start_broker(tmp_path) as broker, Admin(bootstrap_servers=broker.bootstrap) as admin:
        for topic in ("doomed", "kept"):
            admin.create_topic(topic, partitions=2)
        with monkeypatch.context() as patched:
            patched.setattr(Connection, "call", deleting(admin_pb2.DeleteTopicsRequest(names=["doomed"]), answers))
            hanging = admin.find_hanging_transactions()
        assert [topic.name for topic in admin.list_topics()] == ["kept"]
        searched = {name.topic for name in hanging.searched}
        assert searched in ([{"kept"}] if answers == 1 else [{"kept"}, {"kept", "doomed"}])
        with pytest.raises(UnknownTopicOrPartition):
            admin.find_hanging_transactions(topics=["doomed"])


def deleting(request: Any, answers: int) -> Callable[..., Awaitable[Any]]:
    """Return a `Connection.call` that deletes topics after this number of answers."""
    call, left = Connection.call, answers

    async def call_and_delete(connection: Connection, *arguments: Any) -> Any:
        nonlocal left
        answer = await call(connection, *arguments)
        left -= 1
        if left == 0:
            [deleted] = (await call(connection, connection.admin.DeleteTopics, request, 10_000)).topics
            assert not deleted.HasField("error")
        return answer

    return call_and_delete
