"""The APIs of sinks, which the transaction coordinator serves (transaction/sink_machine.py). Kafka has none of them.

- The writers of a batch produce as any transactional producer does: the leaders ask the coordinator whether a producer
  id belongs to the sink (AddPartitionsToTxn).
- CommitBatch is answered once the outcome is decided for good; markers are written after that.
- Kafka's clients see sinks among the transactional ids. InitProducerId and EndTxn for a sink get INVALID_REQUEST.
"""

from __future__ import annotations

from sparklog.base.acls import AclOperation
from sparklog.base.errors import KafkaError
from sparklog.broker.api import Api
from sparklog.broker.rights import TOPIC, TRANSACTIONAL_ID, OnAll, OnEach, OnShown, itself, on_sink
from sparklog.transaction.coordinator import TransactionCoordinator
from sparklog.transaction.sink_requests import (
    AbortBatch,
    AbortBatchResponse,
    CommitBatch,
    CommitBatchResponse,
    DescribedSink,
    DescribeSinks,
    DescribeSinksResponse,
    JoinBatch,
    JoinBatchResponse,
    ListSinks,
    ListSinksResponse,
    ResetSink,
    ResetSinkResponse,
)


async def join_batch(request: JoinBatch, *, transactions: TransactionCoordinator) -> JoinBatchResponse:
    """Return the producer id of a task attempt, or that the batch is committed."""
    return await transactions.sinks.join_batch(request)


async def commit_batch(request: CommitBatch, *, transactions: TransactionCoordinator) -> CommitBatchResponse:
    """Answer once the commit is decided."""
    return await transactions.sinks.commit_batch(request)


async def abort_batch(request: AbortBatch, *, transactions: TransactionCoordinator) -> AbortBatchResponse:
    """Answer once the abort is decided, or if no batch is open."""
    return await transactions.sinks.abort_batch(request)


async def describe_sinks(request: DescribeSinks, *, transactions: TransactionCoordinator) -> DescribeSinksResponse:
    """Return a description or the error of each sink, in their order."""
    return await transactions.sinks.describe(request)


async def list_sinks(request: ListSinks, *, transactions: TransactionCoordinator) -> ListSinksResponse:
    """Return the sinks that this broker coordinates; an error beside them if some are not loaded yet."""
    return await transactions.sinks.list(request)


async def reset_sink(request: ResetSink, *, transactions: TransactionCoordinator) -> ResetSinkResponse:
    """Answer once the sink's deletion is in the log; ConcurrentTransactions while an open batch is aborted first."""
    return await transactions.sinks.reset(request)


def _topics_of_winners(request: CommitBatch) -> set[str]:
    return {topic for winner in request.winners for topic in winner.topics}


def _refused(sink_id: str, error: KafkaError) -> DescribedSink:
    return DescribedSink(sink_id=sink_id, error=error)


JOIN_BATCH = Api(
    name="JoinBatch", summary="take part in a batch of a sink", handle=join_batch, rights=(on_sink(AclOperation.WRITE),)
)
COMMIT_BATCH = Api(
    name="CommitBatch",
    summary="commit a batch of a sink",
    handle=commit_batch,
    rights=(
        on_sink(AclOperation.WRITE),
        OnAll(AclOperation.WRITE, TOPIC, _topics_of_winners),
    ),
)
ABORT_BATCH = Api(
    name="AbortBatch", summary="abort a batch of a sink", handle=abort_batch, rights=(on_sink(AclOperation.WRITE),)
)
DESCRIBE_SINKS = Api(
    name="DescribeSinks",
    summary="show the batches of sinks",
    handle=describe_sinks,
    rights=(OnEach(AclOperation.DESCRIBE, TRANSACTIONAL_ID, "sink_ids", itself, _refused, "sinks"),),
)
LIST_SINKS = Api(
    name="ListSinks",
    summary="list the sinks that this broker coordinates",
    handle=list_sinks,
    rights=(OnShown(AclOperation.DESCRIBE, TRANSACTIONAL_ID, "sinks", lambda sink, access: sink.sink_id),),
)
RESET_SINK = Api(
    name="ResetSink", summary="forget a sink and its batches", handle=reset_sink, rights=(on_sink(AclOperation.WRITE),)
)
