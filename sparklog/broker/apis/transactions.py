"""The APIs that the transaction coordinator serves alone; the handlers pass each request on to it.

- AddPartitionsToTxn comes from clients of protocol 1 before they produce to a partition, and from brokers, which verify
  that a batch belongs to its producer's transaction, or enrol the partition in it for clients of protocol 2 (KIP-890).
- AddOffsetsToTxn enrols the partition of `__consumer_offsets` that a group belongs to.
- EndTxn is answered once the outcome is decided for good; markers are written after that.
- The versions are Kafka 4.3's, but for two-phase commits (KIP-939), which are not served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.base.errors import KafkaError, OperationNotAttempted, UnknownTopicOrPartition
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api, Handlers, Operation
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.group.coordinator import OFFSETS_TOPIC, GroupCoordinator
from sparklog.runtime.slices import Slices
from sparklog.transaction.coordinator import TransactionCoordinator
from sparklog.transaction.requests import (
    AddPartitions,
    AddPartitionsResponse,
    DescribeTransactions,
    DescribeTransactionsResponse,
    EndTxn,
    EndTxnResponse,
    ListTransactions,
    ListTransactionsResponse,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOffsets:
    """Enrol a group's partition of the offsets topic in a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOffsetsResponse:
    error: KafkaError | None = None


async def add_partitions(
    request: AddPartitions, *, metadata: MetadataCache, transactions: TransactionCoordinator
) -> AddPartitionsResponse:
    """Enrol all partitions or none of them: a partition that does not exist leaves the others unattempted."""
    if not request.is_verify_only and not all(map(metadata.has, request.partitions)):
        return AddPartitionsResponse(errors={name: _why_not(metadata, name) for name in request.partitions})
    return await transactions.add_partitions(request)


def _why_not(metadata: MetadataCache, name: TopicPartition) -> KafkaError:
    if metadata.has(name):
        return OperationNotAttempted(f"{name}: another partition of the request does not exist")
    return UnknownTopicOrPartition(f"there is no partition {name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsOfMany:
    """Requests of several transactional ids at once, as brokers send them."""

    transactions: Sequence[AddPartitions]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsOfManyResponse:
    transactions: Sequence[AddPartitionsResponse]
    """In the order of the request."""


async def add_partitions_of_many(
    request: AddPartitionsOfMany, *, handlers: Handlers, slices: Slices
) -> AddPartitionsOfManyResponse:
    """Ask for all transactions at once: each waits until what it has added is committed."""

    async def begin(asked: AddPartitions) -> asyncio.Future[AddPartitionsResponse]:
        return asyncio.ensure_future(handlers[ADD_PARTITIONS](asked))

    answers = await asyncio.gather(*await slices.each(request.transactions, begin))
    return AddPartitionsOfManyResponse(transactions=answers)


async def add_offsets(
    request: AddOffsets, *, groups: GroupCoordinator, transactions: TransactionCoordinator
) -> AddOffsetsResponse:
    """Raises InvalidGroupId."""
    name = TopicPartition(OFFSETS_TOPIC, groups.partition_for(request.group_id))
    answer = await transactions.add_partitions(
        AddPartitions(
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            partitions=[name],
        )
    )
    return AddOffsetsResponse(error=answer.errors[name])


async def end(request: EndTxn, *, transactions: TransactionCoordinator) -> EndTxnResponse:
    return await transactions.end(request)


async def describe(
    request: DescribeTransactions, *, transactions: TransactionCoordinator
) -> DescribeTransactionsResponse:
    return await transactions.describe(request)


async def list_transactions(
    request: ListTransactions, *, transactions: TransactionCoordinator
) -> ListTransactionsResponse:
    return await transactions.list(request)


ADD_PARTITIONS = Api(
    name="AddPartitionsToTxn",
    summary="enrol partitions in a transaction, or verify that they are",
    handle=add_partitions,
    key=24,
    versions=(0, 5),
)
ADD_PARTITIONS_OF_MANY = Operation(handle=add_partitions_of_many)
ADD_OFFSETS = Api(
    name="AddOffsetsToTxn",
    summary="enrol the offsets of a group in a transaction",
    handle=add_offsets,
    key=25,
    versions=(0, 4),
)
END = Api(name="EndTxn", summary="commit or abort a transaction", handle=end, key=26, versions=(0, 5))
DESCRIBE = Api(
    name="DescribeTransactions",
    summary="show the state, the producer and the partitions of transactional ids",
    handle=describe,
    key=65,
    versions=(0, 0),
)
LIST = Api(
    name="ListTransactions",
    summary="list the transactional ids that this broker coordinates",
    handle=list_transactions,
    key=66,
    versions=(0, 2),
)
