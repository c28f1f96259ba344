"""Requests about sinks to a transaction coordinator, and its responses, as plain values (sink_machine.py).

Kafka has none of these APIs. `refused` returns the response to a request that is refused as a whole. Times are in
milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.transaction_topic.records import NO_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from sparklog.transaction_topic.sinks import NO_BATCH


class JoinBatch(Struct, frozen=True, kw_only=True):
    """Joins a task attempt to a batch, before its first record. With its producer id: keeps the batch open."""

    sink_id: str
    run_id: str
    batch_id: int
    timeout_ms: int
    """Time for which the batch stays open after the last join, renewal or new partition."""
    is_one_off: bool = False
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH

    def refused(self, error: KafkaError) -> JoinBatchResponse:
        return JoinBatchResponse(error=error)


class JoinBatchResponse(Struct, frozen=True, kw_only=True):
    error: KafkaError | None = None
    is_committed: bool = False
    """Whether an earlier run has committed the batch: then there is no producer id, and the task need not write."""
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class Winner(Struct, frozen=True, kw_only=True):
    """A task attempt whose records belong to the batch."""

    producer_id: int
    producer_epoch: int
    topics: Mapping[str, Sequence[int]]
    """All partitions that it wrote to, by topic."""


class CommitBatch(Struct, frozen=True, kw_only=True):
    """Answered when the Prepare record is committed; markers are written after that."""

    sink_id: str
    run_id: str
    batch_id: int
    winners: Sequence[Winner]

    def refused(self, error: KafkaError) -> CommitBatchResponse:
        return CommitBatchResponse(error=error)


class CommitBatchResponse(Struct, frozen=True, kw_only=True):
    error: KafkaError | None = None


class AbortBatch(Struct, frozen=True, kw_only=True):
    """Aborts an open batch; refused once the batch is committed."""

    sink_id: str
    run_id: str
    batch_id: int

    def refused(self, error: KafkaError) -> AbortBatchResponse:
        return AbortBatchResponse(error=error)


class AbortBatchResponse(Struct, frozen=True, kw_only=True):
    error: KafkaError | None = None


class DescribeSinks(Struct, frozen=True, kw_only=True):
    sink_ids: Sequence[str]

    def refused(self, error: KafkaError) -> DescribeSinksResponse:
        return DescribeSinksResponse(sinks=[DescribedSink(sink_id=name, error=error) for name in self.sink_ids])


class DescribedSink(Struct, frozen=True, kw_only=True):
    sink_id: str
    error: KafkaError | None = None
    state: str = ""
    run_id: str = ""
    batch_id: int = NO_BATCH
    """The batch that is open or ending; otherwise the last one."""
    committed_run_id: str = ""
    committed_batch_id: int = NO_BATCH
    last_update_ms: int = NO_TIMESTAMP
    timeout_ms: int = 0
    producers: int = 0
    """Number of task attempts of the batch that is open or ending."""
    partitions: Sequence[TopicPartition] = ()
    """The partitions of that batch."""


class DescribeSinksResponse(Struct, frozen=True, kw_only=True):
    sinks: Sequence[DescribedSink]


class ListSinks(Struct, frozen=True, kw_only=True):
    def refused(self, error: KafkaError) -> ListSinksResponse:
        return ListSinksResponse(error=error)


class ListedSink(Struct, frozen=True, kw_only=True):
    sink_id: str
    state: str
    committed_batch_id: int
    last_update_ms: int


class ListSinksResponse(Struct, frozen=True, kw_only=True):
    error: KafkaError | None = None
    """Set if not all partitions are loaded yet; the sinks of the loaded ones are listed."""
    sinks: Sequence[ListedSink] = ()


class ResetSink(Struct, frozen=True, kw_only=True):
    """Deletes a sink: a query with its id begins anew, and writes batches that were committed before again."""

    sink_id: str

    def refused(self, error: KafkaError) -> ResetSinkResponse:
        return ResetSinkResponse(error=error)


class ResetSinkResponse(Struct, frozen=True, kw_only=True):
    error: KafkaError | None = None
