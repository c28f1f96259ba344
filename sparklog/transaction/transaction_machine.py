"""The transactional ids of one partition of `__transaction_state`: a state machine (runtime/state_machine.py).

The life of a transaction, as in Apache Kafka's TransactionCoordinator:

    InitProducerId    a producer gets its id and epoch; an open transaction of an older producer is aborted
    AddPartitions     partitions join the transaction; the first one begins it
    EndTxn            a Prepare record decides the end. Once it is committed, the client is answered, and the
                      coordinator gets the effect SendMarkers
    markers_written   the coordinator reports partitions that have their marker; after the last one, a Complete record
                      ends the transaction

After a failover, `loaded` sends all markers of prepared transactions again. A partition ignores a second copy of a
marker. The coordinator must not carry out these effects before the loaded records are committed.

An id has one change at a time: until its record is committed, requests get CONCURRENT_TRANSACTIONS, on which clients
retry. Only additions of partitions may overlap, as they do not conflict: a client sends to several brokers at once, and
each broker adds its partitions. If the record of a prepared transaction cannot be committed in time, it is written
again every RETRY_MS, as the decision may be in the log.

A refused request raises a KafkaError before anything has changed.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    InvalidTxnState,
    KafkaError,
    PolicyViolation,
    ProducerFenced,
)
from sparklog.base.ids import TopicPartition
from sparklog.runtime.state_machine import Decision, DecisionBuilder
from sparklog.transaction.changes import completed, extended, fenced, is_exhausted, is_following, prepared, state_of
from sparklog.transaction.end_txn import EndTxnOutcome, decide_end
from sparklog.transaction.events import PreparedTimer, TransactionChange, markers_of
from sparklog.transaction.init_producer_id import initialise
from sparklog.transaction.pending import PendingChanges
from sparklog.transaction.requests import (
    TV2,
    AddPartitions,
    AddPartitionsResponse,
    EndTxn,
    EndTxnResponse,
    InitProducerId,
    InitProducerIdResponse,
)
from sparklog.transaction.states import ONGOING, OPEN, PREPARED
from sparklog.transaction_topic.records import (
    NO_PRODUCER_ID,
    TransactionKey,
    TransactionRecord,
    TransactionValue,
)

RETRY_MS = 500
MOST_IDS = 100_000
"""Maximum number of transactional ids in one partition of `__transaction_state`; each takes 1 to 2 KB of memory."""
MOST_PARTITIONS = 10_000
"""Maximum number of partitions in one transaction. All of them are in each of its records."""
MOST_BYTES = 500_000
"""Maximum size of the names and numbers of one transaction's partitions: a record must fit into max.message.bytes."""
MOST_PARTITIONS_IN_ALL = 200_000
"""Maximum number of partitions in all open transactions together."""
MOST_EXPIRED = 1_000
"""Maximum number of ids that one call deletes."""

Work = DecisionBuilder[TransactionRecord]


class _Transaction:
    """A transactional id in memory."""

    __slots__ = ("partitions", "value")

    def __init__(self, value: TransactionValue) -> None:
        self.value = value
        self.partitions = set(value.partitions or ())
        """The transaction's partitions; while it ends, those without a reported marker."""


class TransactionMachine:
    """The transactional ids of one partition. Implements Machine."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._found: dict[str, _Transaction] = {}
        self._pending = PendingChanges()
        self._open_partitions = 0

    @property
    def transactional_ids(self) -> Collection[str]:
        """All transactional ids: a view, which changes with them."""
        return self._found.keys()

    def find(self, transactional_id: str) -> TransactionValue | None:
        """Return the value of an id; None if there is none."""
        found = self._found.get(transactional_id)
        return found.value if found else None

    def needs_producer_id(self, transactional_id: str) -> bool:
        """Return whether the next InitProducerId, EndTxn or abort of an id needs a fresh producer id.

        Without one, they raise ConcurrentTransactions.
        """
        value = self.find(transactional_id)
        return value is None or is_exhausted(value.producer_epoch)

    # Requests

    def init_producer_id(
        self, request: InitProducerId, fresh_producer_id: int, now_ms: int
    ) -> Decision[TransactionRecord, InitProducerIdResponse]:
        """Give a producer its id and epoch. fresh_producer_id: not used if `needs_producer_id` is False"""
        _check_id(request.transactional_id)
        if not 0 < request.timeout_ms <= self._config.transaction_max_timeout_ms:
            raise InvalidTransactionTimeout(
                f"a transaction timeout of {request.timeout_ms} ms: 1 to {self._config.transaction_max_timeout_ms} ms"
            )
        if (request.producer_id < 0) != (request.producer_epoch < 0):
            raise InvalidRequest("a producer id without an epoch, or an epoch without an id")
        name = request.transactional_id
        self._pending.check_idle(name)
        value = self.find(name)
        if value is None and len(self._found) >= MOST_IDS:
            raise PolicyViolation(f"more than {MOST_IDS} transactional ids in one partition of __transaction_state")
        following = initialise(value, request, self._fresh(name, fresh_producer_id), now_ms)
        work = Work()
        if state_of(following) in PREPARED:
            self._end(name, following, work)
            return work.decide(request.refused(ConcurrentTransactions("an open transaction is being aborted")))
        self._change(name, following, work)
        return work.decide(
            InitProducerIdResponse(producer_id=following.producer_id, producer_epoch=following.producer_epoch)
        )

    def add_partitions(self, request: AddPartitions, now_ms: int) -> Decision[TransactionRecord, AddPartitionsResponse]:
        """Add partitions to the producer's transaction, or only verify that they are part of it.

        A partition that is not part of it has InvalidTxnState in the response.
        """
        found = self._of_producer(request)
        if state_of(found.value) in PREPARED:
            raise ConcurrentTransactions("the former transaction is about to end")
        errors: dict[TopicPartition, KafkaError | None] = dict.fromkeys(request.partitions)
        added = [partition for partition in errors if partition not in found.partitions]
        if request.is_verify_only:
            missing = InvalidTxnState("the partition is not part of the transaction")
            return Decision(response=AddPartitionsResponse(errors={**errors, **dict.fromkeys(added, missing)}))
        work = Work()
        if added:
            self._check_size(found, added)
            following = extended(found.value, added, request.transaction_version, now_ms)
            self._change(request.transactional_id, following, work, is_extension=True)
        return work.decide(AddPartitionsResponse(errors=errors))

    def end_txn(
        self, request: EndTxn, fresh_producer_id: int, now_ms: int
    ) -> Decision[TransactionRecord, EndTxnResponse]:
        """Commit or abort the producer's transaction. fresh_producer_id: as in `init_producer_id`"""
        name = request.transactional_id
        _check_id(name)
        self._pending.check_idle(name)
        value = self._get(name).value
        ending = decide_end(value, request)
        if self._pending.is_extending(name):
            raise ConcurrentTransactions("partitions are joining the transaction")
        work = Work()
        if ending is not EndTxnOutcome.DONE:
            is_v2 = request.transaction_version >= TV2
            value = prepared(
                value,
                is_commit=request.is_commit,
                version=request.transaction_version,
                fresh_producer_id=self._fresh(name, fresh_producer_id) if is_v2 else NO_PRODUCER_ID,
                now_ms=now_ms,
            )
            self._end(name, value, work)
        return work.decide(_ended(value, request))

    def open_partitions(self, transactional_id: str) -> Collection[TopicPartition]:
        """Return the partitions of an id's transaction; while it ends, those without a reported marker."""
        return self._found[transactional_id].partitions

    # Markers

    def markers_written(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        now_ms: int,
    ) -> Decision[TransactionRecord, None]:
        """Record that partitions have their marker, or no longer exist. A report for another epoch is ignored."""
        work = Work()
        found = self._found.get(transactional_id)
        if found is None or state_of(found.value) not in PREPARED:
            return work.decide()
        if (producer_id, producer_epoch) == (found.value.producer_id, found.value.producer_epoch):
            found.partitions.difference_update(partitions)
            if not found.partitions:
                self._change(transactional_id, completed(found.value, now_ms), work)
        return work.decide()

    # The clock

    def timed_out(self, now_ms: int, among: Iterable[str] | None = None) -> Sequence[str]:
        """Return the ids, of all or of `among`, whose transaction has been open for longer than its timeout."""
        return [name for name in (self._found if among is None else among) if self._is_timed_out(name, now_ms)]

    def abort_timed_out(
        self, transactional_id: str, fresh_producer_id: int, now_ms: int
    ) -> Decision[TransactionRecord, None]:
        """Abort a transaction after its timeout. Its producer may continue with the next epoch.

        Raises ConcurrentTransactions if a fresh producer id is needed and missing.
        """
        work = Work()
        if self._is_timed_out(transactional_id, now_ms):
            value = self._found[transactional_id].value
            fresh = self._fresh(transactional_id, fresh_producer_id)
            following = fenced(value, last_epoch=value.producer_epoch, fresh_producer_id=fresh, now_ms=now_ms)
            self._end(transactional_id, following, work)
        return work.decide()

    def expire(self, now_ms: int, among: Iterable[str] | None = None) -> Decision[TransactionRecord, None]:
        """Delete expired ids, of all or of `among`; at most MOST_EXPIRED in one call."""
        oldest_ms = now_ms - self._config.transactional_id_expiration_ms
        work = Work()
        expired: list[str] = []
        for name in self._found if among is None else among:
            value = self.find(name)
            if (
                value is None
                or state_of(value) in OPEN
                or self._pending.is_pending(name)
                or value.last_update_ms > oldest_ms
            ):
                continue
            expired.append(name)
            if len(expired) == MOST_EXPIRED:
                break
        if expired:
            work.write(*(TransactionRecord(TransactionKey(transactional_id=name)) for name in expired))
            for name in expired:
                self._pending.begin(name)
            work.once_written(TransactionChange(transactional_ids=expired))
        return work.decide()

    # The log and the shell

    def replay(self, record: TransactionRecord) -> None:
        """Apply a record of the log."""
        name = record.key.transactional_id
        if former := self._found.pop(name, None):
            self._open_partitions -= _open_partitions(former.value)
        if record.value is not None:
            self._found[name] = _Transaction(record.value)
            self._open_partitions += _open_partitions(record.value)

    def loaded(self, now_ms: int, among: Iterable[str] | None = None) -> Decision[TransactionRecord, None]:
        """Send the markers of prepared transactions, of all ids or of `among`, after the whole log is replayed."""
        work = Work()
        for name in self._found if among is None else among:
            value = self.find(name)
            if value is not None and state_of(value) in PREPARED:
                work.once_committed(markers_of(name, value))
        return work.decide()

    def timer_fired(self, key: Hashable, now_ms: int) -> Decision[TransactionRecord, None]:
        """Write a prepared transaction again if its last record has failed."""
        work = Work()
        if isinstance(key, PreparedTimer):
            name = key.transactional_id
            found = self._found.get(name)
            if found is not None and state_of(found.value) in PREPARED and not self._pending.is_pending(name):
                if found.partitions:
                    self._end(name, found.value, work)
                else:
                    self._change(name, completed(found.value, now_ms), work)
        return work.decide()

    def written(self, event: Any, error: KafkaError | None, now_ms: int) -> Decision[TransactionRecord, None]:
        work = Work()
        if isinstance(event, TransactionChange):
            for name in event.transactional_ids:
                self._pending.ended(name, is_extension=event.is_extension)
                value = self.find(name)
                if error is not None and value is not None and state_of(value) in PREPARED:
                    work.set_timer(PreparedTimer(transactional_id=name), RETRY_MS)
        return work.decide()

    # Steps

    def _change(self, name: str, value: TransactionValue, work: Work, *, is_extension: bool = False) -> None:
        work.write(TransactionRecord(TransactionKey(transactional_id=name), value))
        self._pending.begin(name, is_extension=is_extension)
        work.once_written(TransactionChange(transactional_ids=[name], is_extension=is_extension))

    def _end(self, name: str, value: TransactionValue, work: Work) -> None:
        """Write a prepared transaction and send its markers; without partitions, complete it at once."""
        self._change(name, value, work)
        if value.partitions:
            work.once_committed(markers_of(name, value))
        else:
            following = completed(value, value.last_update_ms)
            work.write(TransactionRecord(TransactionKey(transactional_id=name), following))

    def _of_producer(self, request: AddPartitions) -> _Transaction:
        """Return the transactional id of a request, if the request is from its present producer."""
        _check_id(request.transactional_id)
        self._pending.check_idle(request.transactional_id)
        found = self._get(request.transactional_id)
        if is_following(found.value, request.producer_id, request.producer_epoch):
            raise ConcurrentTransactions("the former transaction is about to end")
        if found.value.producer_id != request.producer_id:
            raise InvalidProducerIdMapping(
                f"{request.transactional_id!r} does not belong to producer {request.producer_id}"
            )
        if found.value.producer_epoch != request.producer_epoch:
            raise ProducerFenced(f"epoch {request.producer_epoch} is fenced by {found.value.producer_epoch}")
        return found

    def _get(self, name: str) -> _Transaction:
        if found := self._found.get(name):
            return found
        raise InvalidProducerIdMapping(f"there is no producer with the transactional id {name!r}")

    def _check_size(self, found: _Transaction, added: Sequence[TopicPartition]) -> None:
        partitions = [*found.partitions, *added] if state_of(found.value) is ONGOING else added
        topics = {topic for topic, _ in partitions}
        size = sum(len(topic) + 8 for topic in topics) + 4 * len(partitions)
        if len(partitions) > MOST_PARTITIONS or size > MOST_BYTES:
            raise PolicyViolation(
                f"a transaction may have {MOST_PARTITIONS} partitions, and {MOST_BYTES} bytes of them"
            )
        if self._open_partitions + len(added) > MOST_PARTITIONS_IN_ALL:
            raise ConcurrentTransactions(f"open transactions have more than {MOST_PARTITIONS_IN_ALL} partitions")

    def _fresh(self, name: str, producer_id: int) -> int:
        if producer_id == NO_PRODUCER_ID and self.needs_producer_id(name):
            raise ConcurrentTransactions("a fresh producer id is needed")
        return producer_id

    def _is_timed_out(self, name: str, now_ms: int) -> bool:
        value = self.find(name)
        if value is None or state_of(value) is not ONGOING or self._pending.is_pending(name):
            return False
        return value.start_ms + value.timeout_ms < now_ms


def _check_id(transactional_id: str) -> None:
    if not transactional_id:
        raise InvalidRequest("the transactional id is empty")


def _open_partitions(value: TransactionValue) -> int:
    return len(value.partitions or ()) if state_of(value) in OPEN else 0


def _ended(value: TransactionValue, request: EndTxn) -> EndTxnResponse:
    """Return the response: in TV2, with the producer id and epoch of the next transaction."""
    if request.transaction_version < TV2:
        return EndTxnResponse()
    if value.next_producer_id != NO_PRODUCER_ID:
        return EndTxnResponse(producer_id=value.next_producer_id, producer_epoch=0)
    return EndTxnResponse(producer_id=value.producer_id, producer_epoch=value.producer_epoch)
