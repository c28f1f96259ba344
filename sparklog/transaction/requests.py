"""Requests to a transaction coordinator and its responses, as plain values; the listeners translate them.

Each class is the request or response of the Kafka API of its name, for all versions. `refused` returns the response to
a request that is refused as a whole. Errors are those of the newest version: a listener answers ProducerFenced as
InvalidProducerEpoch where a version is too old for it. Times are in milliseconds; an absent producer id, epoch or time
is -1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.transaction_topic.records import NO_EPOCH, NO_PRODUCER_ID

TV1, TV2 = 0, 2
"""Transaction protocols of clients, numbered as in the records. TV2 (KIP-890): each end of a transaction raises the
epoch, so that a late request cannot join or end a later transaction."""


class InitProducerId(Struct, frozen=True, kw_only=True):
    """Key 22, with a transactional id."""

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    """The present producer id of a producer that continues after an error (KIP-360)."""
    producer_epoch: int = NO_EPOCH

    def refused(self, error: KafkaError) -> InitProducerIdResponse:
        return InitProducerIdResponse(error=error)


class InitProducerIdResponse(Struct, frozen=True, kw_only=True):
    error: KafkaError | None = None
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class AddPartitions(Struct, frozen=True, kw_only=True):
    """One transaction of key 24. Brokers also send it for Produce and TxnOffsetCommit of TV2 clients."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Sequence[TopicPartition]
    is_verify_only: bool = False
    """Whether to only verify that the partitions are part of the transaction."""
    transaction_version: int = TV1

    def refused(self, error: KafkaError) -> AddPartitionsResponse:
        return AddPartitionsResponse(errors=dict.fromkeys(self.partitions, error))


class AddPartitionsResponse(Struct, frozen=True, kw_only=True):
    errors: Mapping[TopicPartition, KafkaError | None]


class EndTxn(Struct, frozen=True, kw_only=True):
    """Key 26. Answered when the Prepare record is committed; markers are written after that."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    transaction_version: int = TV1

    def refused(self, error: KafkaError) -> EndTxnResponse:
        return EndTxnResponse(error=error)


class EndTxnResponse(Struct, frozen=True, kw_only=True):
    error: KafkaError | None = None
    producer_id: int = NO_PRODUCER_ID
    """Producer id and epoch of the next transaction; absent in TV1, where they do not change."""
    producer_epoch: int = NO_EPOCH


class DescribeTransactions(Struct, frozen=True, kw_only=True):
    """Key 65."""

    transactional_ids: Sequence[str]

    def refused(self, error: KafkaError) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(
            transactions=[DescribedTransaction(transactional_id=name, error=error) for name in self.transactional_ids]
        )


class DescribedTransaction(Struct, frozen=True, kw_only=True):
    """The state of a transactional id. With an error, numbers are 0, as in Kafka's answer.

    start_ms: -1 without an open transaction.
    """

    transactional_id: str
    error: KafkaError | None = None
    state: str = ""
    timeout_ms: int = 0
    start_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    partitions: Sequence[TopicPartition] = ()
    """Partitions of the open transaction; while it ends, those without a marker."""


class DescribeTransactionsResponse(Struct, frozen=True, kw_only=True):
    transactions: Sequence[DescribedTransaction]


class ListTransactions(Struct, frozen=True, kw_only=True):
    """Key 66. An empty filter selects all ids."""

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    duration_ms: int = -1
    """List only transactions that began longer ago than this; -1: all."""
    id_pattern: str = ""
    """A regular expression that matches whole ids (KIP-1152)."""

    def refused(self, error: KafkaError) -> ListTransactionsResponse:
        return ListTransactionsResponse(error=error)


class ListedTransaction(Struct, frozen=True, kw_only=True):
    transactional_id: str
    producer_id: int
    state: str


class ListTransactionsResponse(Struct, frozen=True, kw_only=True):
    error: KafkaError | None = None
    unknown_states: Sequence[str] = ()
    """Unknown names in the request's `states`."""
    transactions: Sequence[ListedTransaction] = field(default_factory=tuple)
