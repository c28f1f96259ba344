"""The APIs of transactions, whose handlers pass each request on to the transaction coordinator.

- Clients of protocol 1 send AddPartitionsToTxn before they produce to a partition. Brokers send it to verify that a
  batch belongs to its producer's transaction, or to enrol the partition for clients of protocol 2 (KIP-890).
- AddOffsetsToTxn enrols the partition of `__consumer_offsets` that a group belongs to.
- EndTxn is answered once the outcome is decided for good; markers are written after that.
- The versions are Kafka 4.3's, but for two-phase commits (KIP-939), which are not served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from sparklog.base.acls import AclOperation
from sparklog.base.errors import KafkaError, OperationNotAttempted, UnknownTopicOrPartition
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api, Handlers, Operation
from sparklog.broker.rights import (
    TOPIC,
    TRANSACTIONAL_ID,
    Access,
    OnEach,
    OnShown,
    Serve,
    itself,
    on_cluster,
    on_group,
    on_transactional_id,
)
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.group.coordinator import OFFSETS_TOPIC, GroupCoordinator
from sparklog.runtime.slices import Slices
from sparklog.transaction.coordinator import TransactionCoordinator
from sparklog.transaction.requests import (
    AddPartitions,
    AddPartitionsResponse,
    DescribedTransaction,
    DescribeTransactions,
    DescribeTransactionsResponse,
    EndTxn,
    EndTxnResponse,
    ListTransactions,
    ListTransactionsResponse,
)


class AddOffsets(Struct, frozen=True, kw_only=True):
    """Enrol a group's partition of the offsets topic in a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


class AddOffsetsResponse(Struct, frozen=True, kw_only=True):
    error: KafkaError | None = None


async def add_partitions(
    request: AddPartitions, *, metadata: MetadataCache, transactions: TransactionCoordinator
) -> AddPartitionsResponse:
    """Enrol all partitions or none of them, and return an error, or None, for each.

    A partition that does not exist leaves the others unattempted.
    """
    if not request.is_verify_only and not all(map(metadata.has, request.partitions)):
        return AddPartitionsResponse(errors={name: _why_not(metadata, name) for name in request.partitions})
    return await transactions.add_partitions(request)


def _why_not(metadata: MetadataCache, name: TopicPartition) -> KafkaError:
    if metadata.has(name):
        return OperationNotAttempted(f"{name}: another partition of the request does not exist")
    return UnknownTopicOrPartition(f"there is no partition {name}")


class AddPartitionsOfMany(Struct, frozen=True, kw_only=True):
    """Requests of several transactional ids at once, as brokers send them."""

    transactions: Sequence[AddPartitions]


class AddPartitionsOfManyResponse(Struct, frozen=True, kw_only=True):
    transactions: Sequence[AddPartitionsResponse]
    """In the order of the request."""


async def add_partitions_of_many(
    request: AddPartitionsOfMany, *, handlers: Handlers, slices: Slices
) -> AddPartitionsOfManyResponse:
    """Return the answers for all transactions, in their order, as `add_partitions` gives them.

    All are asked at once: each waits until what it has added is committed.
    """

    async def begin(asked: AddPartitions) -> asyncio.Future[AddPartitionsResponse]:
        return asyncio.ensure_future(handlers[ADD_PARTITIONS](asked))

    answers = await asyncio.gather(*await slices.each(request.transactions, begin))
    return AddPartitionsOfManyResponse(transactions=answers)


async def add_offsets(
    request: AddOffsets, *, groups: GroupCoordinator, transactions: TransactionCoordinator
) -> AddOffsetsResponse:
    """Enrol the group's partition of `__consumer_offsets`, and return its error or None. Raises InvalidGroupId."""
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
    """Return the next transaction's producer id and epoch, once the end is decided."""
    return await transactions.end(request)


async def describe(
    request: DescribeTransactions, *, transactions: TransactionCoordinator
) -> DescribeTransactionsResponse:
    """Return the transaction or the error of each id, in their order."""
    return await transactions.describe(request)


async def list_transactions(
    request: ListTransactions, *, transactions: TransactionCoordinator
) -> ListTransactionsResponse:
    """Return the ids that this broker coordinates; an error beside them if some are not loaded yet."""
    return await transactions.list(request)


class AllPartitions:
    """WRITE on the topics of all partitions; if one lacks it, no partition is enrolled. Implements Right."""

    def admits(self, request: AddPartitions, access: Access) -> bool:
        return all(access.may(AclOperation.WRITE, TOPIC, name.topic) for name in request.partitions)

    async def apply(self, request: AddPartitions, access: Access, serve: Serve) -> AddPartitionsResponse:
        errors = {
            name: access.refusal(AclOperation.WRITE, TOPIC, name.topic)
            for name in request.partitions
            if not access.may(AclOperation.WRITE, TOPIC, name.topic)
        }
        if not errors:
            response: AddPartitionsResponse = await serve(request)
            return response
        return AddPartitionsResponse(
            errors={
                name: errors.get(name) or OperationNotAttempted(f"{name}: the client may not write to others")
                for name in request.partitions
            }
        )

    def __str__(self) -> str:
        return "WRITE on every TOPIC"


class DescribablePartitions:
    """DESCRIBE on the topics of a transaction's partitions; partitions without it are left out. Implements Right."""

    def admits(self, request: DescribeTransactions, access: Access) -> bool:
        return False  # decided by the response

    async def apply(self, request: DescribeTransactions, access: Access, serve: Serve) -> DescribeTransactionsResponse:
        response: DescribeTransactionsResponse = await serve(request)
        return DescribeTransactionsResponse(
            transactions=[replace(each, partitions=self._describable(each, access)) for each in response.transactions]
        )

    def _describable(self, found: DescribedTransaction, access: Access) -> Sequence[TopicPartition]:
        return [name for name in found.partitions if access.may(AclOperation.DESCRIBE, TOPIC, name.topic)]

    def __str__(self) -> str:
        return "DESCRIBE on each TOPIC that is shown"


def _refused(transactional_id: str, error: KafkaError) -> DescribedTransaction:
    return DescribedTransaction(transactional_id=transactional_id, error=error)


ADD_PARTITIONS = Api(
    name="AddPartitionsToTxn",
    summary="enrol partitions in a transaction, or verify that they are",
    handle=add_partitions,
    rights=(
        on_transactional_id(AclOperation.WRITE),
        AllPartitions(),
    ),
    key=24,
    versions=(0, 5),
)
ADD_PARTITIONS_OF_MANY = Operation(handle=add_partitions_of_many, rights=(on_cluster(AclOperation.CLUSTER_ACTION),))
ADD_OFFSETS = Api(
    name="AddOffsetsToTxn",
    summary="enrol the offsets of a group in a transaction",
    handle=add_offsets,
    rights=(
        on_transactional_id(AclOperation.WRITE),
        on_group(AclOperation.READ),
    ),
    key=25,
    versions=(0, 4),
)
END = Api(
    name="EndTxn",
    summary="commit or abort a transaction",
    handle=end,
    rights=(on_transactional_id(AclOperation.WRITE),),
    key=26,
    versions=(0, 5),
)
DESCRIBE = Api(
    name="DescribeTransactions",
    summary="show the state, the producer and the partitions of transactional ids",
    handle=describe,
    rights=(
        OnEach(AclOperation.DESCRIBE, TRANSACTIONAL_ID, "transactional_ids", itself, _refused, "transactions"),
        DescribablePartitions(),
    ),
    key=65,
    versions=(0, 0),
)
LIST = Api(
    name="ListTransactions",
    summary="list the transactional ids that this broker coordinates",
    handle=list_transactions,
    rights=(
        OnShown(AclOperation.DESCRIBE, TRANSACTIONAL_ID, "transactions", lambda found, access: found.transactional_id),
    ),
    key=66,
    versions=(0, 2),
)
