"""The admin client's calls about transactions: list, describe, and abort one that hangs.

Lists are collected from all brokers. Transactional ids are described by their coordinators, producers by the leaders of
their partitions (KIP-664).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from sparklog.base.errors import (
    InvalidRequest,
    KafkaError,
    RetriableError,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
)
from sparklog.base.ids import TopicPartition
from sparklog.base.message_mapping import read_error
from sparklog.client.admin.transaction_descriptions import (
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
    to_producers,
    to_transaction,
    to_transaction_listing,
)
from sparklog.client.cluster import Cluster
from sparklog.client.connection import Connection, raise_error_of
from sparklog.client.retry import retrying
from sparklog.v1 import admin_pb2, transactions_pb2

TOGETHER = 500
"""Number of partitions, producer ids or transactional ids in one request."""
FIRST_COORDINATOR_EPOCH = 0
"""Sent if the partition knows no coordinator epoch. The lowest epoch fences no coordinator."""
T = TypeVar("T")
Producers = dict[TopicPartition, tuple[ProducerDescription, ...]]
Progress = Callable[[int], None]
"""Called during a search, each time with the number of further partitions searched."""


class TransactionAdmin:
    """The calls of AsyncAdmin about transactions; its methods of the same names document them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._timeout_ms = cluster.config.default_api_timeout_ms
        self._request_timeout_ms = cluster.config.request_timeout_ms

    async def list_transactions(
        self, states: Iterable[str], producer_ids: Iterable[int], duration_ms: int | None, id_pattern: str
    ) -> list[TransactionListing]:
        request = transactions_pb2.ListTransactionsRequest(
            states=list(states), producer_ids=list(producer_ids), duration_ms=duration_ms, id_pattern=id_pattern
        )

        async def ask(broker_id: int, broker: Connection) -> list[TransactionListing]:
            answer = await broker.call(broker.transactions.ListTransactions, request, self._request_timeout_ms)
            raise_error_of(answer)
            if answer.unknown_states:
                raise InvalidRequest(f"transactions have no state {', '.join(answer.unknown_states)}")
            return [to_transaction_listing(found, broker_id) for found in answer.transactions]

        listed = await self._until_answered(lambda: self._cluster.ask_brokers(ask))
        return sorted(listed, key=lambda found: found.transactional_id)

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> list[TransactionDescription]:
        found = await self._describe_ids(transactional_ids)
        for transactional_id, described in found.items():
            if described is None:
                raise TransactionalIdNotFound(f"there is no transactional id {transactional_id!r}")
        return [described for described in found.values() if described is not None]

    async def describe_producers(
        self,
        partitions: Iterable[TopicPartition],
        progress: Progress | None = None,
        *,
        omits_missing: bool = False,
    ) -> Producers:
        """See AsyncAdmin; returns each partition's producers.

        omits_missing: leave out topics that do not exist or lack one of the partitions, instead of raising
        """
        found: Producers = {}
        for part in _chunks(partitions):
            try:
                found |= await self._until_answered(partial(self._producers, part), UnknownTopicOrPartition)
            except UnknownTopicOrPartition:
                if not omits_missing:
                    raise
                found |= await self._producers_of_existing(part)
            if progress:
                progress(len(part))
        return found

    async def abort_transaction(
        self, partition: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        request = transactions_pb2.AbortTransactionRequest(
            topic=partition.topic,
            partition=partition.partition,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=max(coordinator_epoch, FIRST_COORDINATOR_EPOCH),
        )

        async def ask(leader: Connection, _: Sequence[TopicPartition]) -> None:
            raise_error_of(await leader.call(leader.transactions.AbortTransaction, request, self._request_timeout_ms))

        await self._until_answered(lambda: self._ask_leaders([partition], ask), UnknownTopicOrPartition)

    async def of_producers(self, producer_ids: Iterable[int]) -> list[TransactionDescription]:
        """Return the transactions of these producers, one for each producer id: a sink has many."""
        listed: list[TransactionListing] = []
        for some in _chunks(producer_ids):
            listed += await self.list_transactions((), some, None, "")
        known = await self._describe_ids(dict.fromkeys(each.transactional_id for each in listed))
        found = ((known[each.transactional_id], each.producer_id) for each in listed)
        return [
            replace(described, producer_id=producer_id) for described, producer_id in found if described is not None
        ]

    async def _describe_ids(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription | None]:
        """Return a description of each id, None for one that does not exist."""
        found: dict[str, TransactionDescription | None] = {}
        for part in _chunks(transactional_ids):
            found |= await self._until_answered(partial(self._describe_at_coordinators, part))
        return found

    async def _describe_at_coordinators(
        self, transactional_ids: Sequence[str]
    ) -> dict[str, TransactionDescription | None]:
        request = transactions_pb2.FindTransactionCoordinatorRequest(transactional_ids=transactional_ids)

        def find(broker: Connection) -> Awaitable[Any]:
            return broker.call(broker.transactions.FindCoordinator, request, self._request_timeout_ms)

        coordinated: dict[int, list[str]] = {}
        addresses: dict[int, str] = {}
        for found in (await self._cluster.any_broker(find)).coordinators:
            raise_error_of(found)
            coordinated.setdefault(found.broker_id, []).append(found.transactional_id)
            addresses[found.broker_id] = found.grpc_address
        answers = await asyncio.gather(
            *(self._ask_coordinator(broker_id, addresses[broker_id], ids) for broker_id, ids in coordinated.items())
        )
        described = {name: each for answer in answers for name, each in answer.items()}
        return {name: described[name] for name in transactional_ids}

    async def _ask_coordinator(
        self, broker_id: int, address: str, transactional_ids: Sequence[str]
    ) -> dict[str, TransactionDescription | None]:
        request = transactions_pb2.DescribeTransactionsRequest(transactional_ids=transactional_ids)
        coordinator = self._cluster.connections.get(address)
        described: dict[str, TransactionDescription | None] = {}
        try:
            answer = await coordinator.call(
                coordinator.transactions.DescribeTransactions, request, self._request_timeout_ms
            )
            for found in answer.transactions:
                error = read_error(found)
                if error is not None and not isinstance(error, TransactionalIdNotFound):
                    raise error
                described[found.transactional_id] = None if error else to_transaction(found, broker_id)
        except RetriableError:
            self._cluster.doubt()
            raise
        return described

    async def _producers_of_existing(self, partitions: Iterable[TopicPartition]) -> Producers:
        """Ask for each topic separately, and for all at the same time: a missing topic takes a second to look up."""
        topics: dict[str, list[TopicPartition]] = {}
        for partition in partitions:
            topics.setdefault(partition.topic, []).append(partition)

        async def ask(of_topic: Sequence[TopicPartition]) -> Producers:
            try:
                return await self._until_answered(partial(self._producers, of_topic), UnknownTopicOrPartition)
            except UnknownTopicOrPartition:
                return {}

        answers = await asyncio.gather(*map(ask, topics.values()))
        return {name: producers for answer in answers for name, producers in answer.items()}

    async def _producers(self, partitions: Sequence[TopicPartition]) -> Producers:
        found: Producers = {}

        async def ask(leader: Connection, led: Sequence[TopicPartition]) -> None:
            wanted = [admin_pb2.PartitionId(topic=item.topic, partition=item.partition) for item in led]
            request = transactions_pb2.DescribeProducersRequest(partitions=wanted)
            answer = await leader.call(leader.transactions.DescribeProducers, request, self._request_timeout_ms)
            for part in answer.partitions:
                raise_error_of(part)
                found[TopicPartition(part.topic, part.partition)] = to_producers(part)

        await self._ask_leaders(partitions, ask)
        return {partition: found[partition] for partition in partitions}

    async def _ask_leaders(
        self,
        partitions: Iterable[TopicPartition],
        ask: Callable[[Connection, Sequence[TopicPartition]], Awaitable[None]],
    ) -> None:
        """Call `ask` for each leader and its partitions. A retriable error outdates the metadata of their topics."""

        async def ask_one(leader: Connection, led: Sequence[TopicPartition]) -> None:
            try:
                await ask(leader, led)
            except RetriableError:
                for partition in led:
                    self._cluster.outdated(partition.topic)
                raise

        groups = await self._cluster.by_leader(partitions, self._timeout_ms)
        await asyncio.gather(*(ask_one(leader, led) for leader, led in groups.items()))

    async def _until_answered(
        self, attempt: Callable[[], Awaitable[T]], final: type[KafkaError] | tuple[type[KafkaError], ...] = ()
    ) -> T:
        return await retrying(
            attempt, final=final, timeout_ms=self._timeout_ms, backoff=self._cluster.backoff, clock=self._cluster.clock
        )


def _chunks(items: Iterable[T]) -> Iterable[Sequence[T]]:
    """Yield the items, each once, in parts of TOGETHER."""
    each = list(dict.fromkeys(items))
    return (each[start : start + TOGETHER] for start in range(0, len(each), TOGETHER))
