"""One partition of `__transaction_state`: the transactional ids of producers, and the sinks among them.

From its first record on, a transactional id belongs to a producer or is a sink. Clients see sinks among the
transactional ids, and only the requests of sink_requests.py change them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Any

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import InvalidRequest, KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.runtime.state_machine import Decision, ProducerIdAndEpoch
from sparklog.transaction.events import SendMarkers, SendSinkMarkers, SinkChange, SinkTimer
from sparklog.transaction.listing import describe, list_transactions
from sparklog.transaction.requests import (
    AddPartitions,
    AddPartitionsResponse,
    DescribeTransactions,
    DescribeTransactionsResponse,
    EndTxn,
    EndTxnResponse,
    InitProducerId,
    InitProducerIdResponse,
    ListTransactions,
    ListTransactionsResponse,
)
from sparklog.transaction.sink_machine import SinkMachine
from sparklog.transaction.sink_requests import JoinBatch, JoinBatchResponse
from sparklog.transaction.transaction_machine import TransactionMachine
from sparklog.transaction_topic.records import TransactionRecord, TransactionValue


class TransactionShard:
    """Passes each request and each record to its machine. Implements coordinator.runtime.Shard."""

    def __init__(self, config: BrokerConfig) -> None:
        self.transactions = TransactionMachine(config)
        self.sinks = SinkMachine(config)

    @property
    def transactional_ids(self) -> Collection[str]:
        """The ids of producers, then those of sinks."""
        return (*self.transactions.transactional_ids, *self.sinks.sink_ids)

    def find(self, transactional_id: str) -> TransactionValue | None:
        """Return the value of an id; None if there is none."""
        return self.transactions.find(transactional_id) or self.sinks.find(transactional_id)

    # Requests

    def init_producer_id(
        self, request: InitProducerId, fresh_producer_id: int, now_ms: int
    ) -> Decision[TransactionRecord, InitProducerIdResponse]:
        """As `TransactionMachine.init_producer_id`. Raises InvalidRequest for a sink."""
        self._check_no_sink(request.transactional_id)
        return self.transactions.init_producer_id(request, fresh_producer_id, now_ms)

    def add_partitions(self, request: AddPartitions, now_ms: int) -> Decision[TransactionRecord, AddPartitionsResponse]:
        """As `TransactionMachine.add_partitions`, or `SinkMachine.add_partitions` if the id is a sink."""
        if self.sinks.find(request.transactional_id) is not None:
            return self.sinks.add_partitions(request, now_ms)
        return self.transactions.add_partitions(request, now_ms)

    def end_txn(
        self, request: EndTxn, fresh_producer_id: int, now_ms: int
    ) -> Decision[TransactionRecord, EndTxnResponse]:
        """As `TransactionMachine.end_txn`. Raises InvalidRequest for a sink."""
        self._check_no_sink(request.transactional_id)
        return self.transactions.end_txn(request, fresh_producer_id, now_ms)

    def join_batch(
        self, request: JoinBatch, fresh_producer_ids: Sequence[int], now_ms: int
    ) -> Decision[TransactionRecord, JoinBatchResponse]:
        """As `SinkMachine.join_batch`. Raises InvalidRequest for the transactional id of a producer."""
        if self.transactions.find(request.sink_id) is not None:
            raise InvalidRequest(f"{request.sink_id!r} is the transactional id of a producer")
        return self.sinks.join_batch(request, fresh_producer_ids, now_ms)

    def describe(self, request: DescribeTransactions) -> DescribeTransactionsResponse:
        """Return a description of each id; a sink's batch is shown as a transaction."""
        return describe(request, self.find, self._open_partitions)

    def list(
        self, request: ListTransactions, now_ms: int, among: Iterable[str] | None = None
    ) -> ListTransactionsResponse:
        """Return the ids, or those of `among`, that pass the filters. Raises InvalidRegularExpression."""
        names = self.transactional_ids if among is None else among
        return list_transactions(request, ((name, value) for name in names if (value := self.find(name))), now_ms)

    # The log and the shell

    def markers_written(self, effect: SendMarkers | SendSinkMarkers, now_ms: int) -> Decision[TransactionRecord, None]:
        """Complete the transaction or batch of an effect: its markers are all written."""
        if isinstance(effect, SendSinkMarkers):
            return self.sinks.markers_written(effect.sink_id, effect.markers, now_ms)
        return self.transactions.markers_written(
            effect.transactional_id, effect.producer_id, effect.producer_epoch, effect.partitions, now_ms
        )

    def loaded(self, now_ms: int, among: Sequence[str]) -> Decision[TransactionRecord, None]:
        """Send the markers of prepared transactions and batches of the ids, after the whole log is replayed."""
        of_producers, of_sinks = self.transactions.loaded(now_ms, among), self.sinks.loaded(now_ms, among)
        return Decision(effects=[*of_producers.effects, *of_sinks.effects])

    def replay(
        self, record: TransactionRecord, log_offset: int | None = None, producer: ProducerIdAndEpoch | None = None
    ) -> None:
        """Apply a record of the log. The offset is not needed: answers wait for all records before them."""
        name, value = record.key.transactional_id, record.value
        is_sink = self.sinks.find(name) is not None if value is None else value.sink is not None
        if is_sink:
            self.sinks.replay(record)
        else:
            self.transactions.replay(record)

    def settle(self, is_committed: Callable[[int], bool]) -> None:
        """Do nothing: the state has no uncommitted part."""

    def timer_fired(self, key: Hashable, now_ms: int) -> Decision[TransactionRecord, None]:
        machine = self.sinks if isinstance(key, SinkTimer) else self.transactions
        return machine.timer_fired(key, now_ms)

    def written(self, event: Any, error: KafkaError | None, now_ms: int) -> Decision[TransactionRecord, None]:
        machine = self.sinks if isinstance(event, SinkChange) else self.transactions
        return machine.written(event, error, now_ms)

    def _check_no_sink(self, name: str) -> None:
        if self.sinks.find(name) is not None:
            raise InvalidRequest(f"{name!r} is a sink: no single producer has its transactions")

    def _open_partitions(self, name: str) -> Iterable[TopicPartition]:
        if (value := self.sinks.find(name)) is not None:
            return value.partitions or ()
        return self.transactions.open_partitions(name)
