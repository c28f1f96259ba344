"""The producer state of a partition, which prevents duplicate and out-of-order batches (KIP-98).

A producer gets an id and numbers the records it sends to a partition; a batch carries the id, an epoch and its first
sequence number. For each producer the partition keeps the epoch and the last five batches, as Apache Kafka does
(ProducerStateManager, ProducerAppendInfo). A batch from a client is

    a duplicate    one of the last five, with the same epoch and sequences: answered as before, and not written
    fenced         its epoch is older: INVALID_PRODUCER_EPOCH
    out of order   its sequence does not follow the last one, or a new epoch does not begin with 0:
                   OUT_OF_ORDER_SEQUENCE_NUMBER; sequences wrap from 2^31 - 1 to 0
    the next       written; any batch of an unknown producer counts as the next

Several batches of one append are checked one after the other, as if each had been written: all are accepted or none.
They are duplicates if the last of them is one, and each of the others is one too or directly precedes the batch after
it: such a batch was written with its successor, but is no longer among the last five.

A transaction begins with the producer's first transactional batch and ends with a marker, a control batch that the
transaction's coordinator writes (`check_marker`). To begin one, a batch needs a verification (verifications.py); it
gets INVALID_TXN_STATE without one. Inside a transaction, a batch that is not transactional gets INVALID_TXN_STATE too.
A marker with a newer epoch ends the old epoch: the next batch has the new epoch and sequence 0 (KIP-890). Empty
batches, which a cleaner leaves of ended transactions, begin none.

Batches and markers from a leader or from the log are not checked again.

A producer expires after producer.id.expiration.ms without a batch, by this broker's clock. Beyond `MAX_PRODUCERS`, the
producer that was silent longest expires. Producers in transactions never do; there are at most `MAX_OPEN` of them.
Apache Kafka uses the timestamp of the last record instead, so a producer of old records soon expires there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from sparklog.base.errors import (
    CorruptRecord,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from sparklog.log.producers.snapshots import NONE, ProducerEntry
from sparklog.log.producers.transactions import OpenTransactions
from sparklog.log.producers.verifications import NO_SEQUENCE, UNVERIFIED, Verification, Verifications
from sparklog.log.segment.transaction_index import AbortedTransaction
from sparklog.log.slice import LogAppendInfo
from sparklog.records.batch import TRANSACTIONAL_BIT, BatchHeader
from sparklog.records.markers import read_marker
from sparklog.records.records import read_records

BATCHES_KEPT = 5
MAX_PRODUCERS = 50_000  # per partition: about 70 MB
MAX_OPEN = MAX_PRODUCERS // 2
"""Open transactions per partition; a batch that would begin one more is refused."""
LATE_PRODUCERS = 5_000
"""Of so many producers, those heard of last, a snapshot has all remembered batches; of the others the last one."""
_SEQUENCES = 1 << 31


class ProducerBatch(NamedTuple):
    """A batch with a producer id, and its offsets in the log."""

    producer_id: int
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    is_transactional: bool

    @classmethod
    def of(cls, header: BatchHeader, last_offset: int, timestamp_ms: int) -> ProducerBatch:
        """Return the batch with this header, which has a producer id. Without sequence numbers, both are NONE.

        last_offset: absolute; the header's base offset need not be set yet. timestamp_ms: the timestamp in the response
        to a duplicate
        """
        first, delta = header.base_sequence, header.last_offset_delta
        return cls(
            header.producer_id, header.producer_epoch, first, NONE if first < 0 else (first + delta) % _SEQUENCES,
            last_offset, delta, timestamp_ms,
            header.attributes & TRANSACTIONAL_BIT > 0 < header.record_count,
        )  # fmt: skip

    @property
    def first_offset(self) -> int:
        """The offset of the first record."""
        return self.last_offset - self.offset_delta

    def is_right_before(self, other: ProducerBatch) -> bool:
        """Return whether `other` is the next batch of the same producer."""
        return (
            (self.producer_id, self.producer_epoch) == (other.producer_id, other.producer_epoch)
            and (self.last_sequence + 1) % _SEQUENCES == other.first_sequence
        )  # fmt: skip


class MarkerBatch(NamedTuple):
    """A control batch that ends a transaction, and its place in the log."""

    producer_id: int
    producer_epoch: int
    offset: int
    is_commit: bool
    coordinator_epoch: int
    timestamp_ms: int


class ProducerState(NamedTuple):
    """The state of one producer; -1 for every value that does not exist."""

    epoch: int = NONE
    coordinator_epoch: int = NONE
    timestamp_ms: int = NONE
    """The timestamp of the last batch or transaction marker."""
    transaction_first_offset: int = NONE
    batches: tuple[ProducerBatch, ...] = ()
    """The last batches of this epoch, oldest first; at most `BATCHES_KEPT`."""
    seen_ms: int = 0
    """The broker's time at which the last batch or marker arrived or was read from the log."""

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record in this epoch; NONE if no batch is remembered."""
        return self.batches[-1].last_sequence if self.batches else NONE

    def find_duplicate(self, batch: ProducerBatch) -> ProducerBatch | None:
        """Return the remembered batch with the same epoch and sequences, or None."""
        if batch.producer_epoch == self.epoch:
            for known in self.batches:
                if known.last_sequence == batch.last_sequence and known.first_sequence == batch.first_sequence:
                    return known
        return None

    def check(self, batch: ProducerBatch, *, is_coordinators: bool = False) -> None:
        """Raise InvalidProducerEpoch, OutOfOrderSequenceNumber or InvalidTxnState if `batch` is not the next one.

        is_coordinators: a coordinator writes the batch for the producer, without sequence numbers.
        """
        if is_coordinators and batch.producer_epoch >= self.epoch:
            is_next = True
        elif batch.producer_epoch == self.epoch:
            is_next = batch.first_sequence == (self.last_sequence + 1) % _SEQUENCES
        elif batch.producer_epoch < self.epoch:
            raise InvalidProducerEpoch(
                f"producer {batch.producer_id} has epoch {self.epoch}, its batch {batch.producer_epoch}"
            )
        else:
            is_next = batch.first_sequence == 0 or self.epoch == NONE
        if not is_next:
            raise OutOfOrderSequenceNumber(
                f"producer {batch.producer_id} sends sequence {batch.first_sequence} of epoch {batch.producer_epoch}; "
                f"the last was {self.last_sequence} of epoch {self.epoch}"
            )
        if self.transaction_first_offset != NONE and not batch.is_transactional:
            raise InvalidTxnState(f"producer {batch.producer_id} is in a transaction, and its batch is not")

    def is_in_transaction(self, producer_epoch: int) -> bool:
        """Return whether a transaction of this epoch is open."""
        return self.transaction_first_offset != NONE and self.epoch == producer_epoch

    def check_marker(self, marker: MarkerBatch, *, is_strict: bool) -> bool:
        """Check a marker from a coordinator; return whether it must be written, which a repeated marker need not be.

        is_strict: a marker must have a newer epoch than the transaction (transaction version 2, KIP-1228). Raises
        InvalidProducerEpoch for an old epoch, TransactionCoordinatorFenced for an old coordinator epoch.
        """
        epoch, is_open = marker.producer_epoch, self.transaction_first_offset != NONE
        if epoch < self.epoch or (is_strict and is_open and epoch == self.epoch):
            raise InvalidProducerEpoch(
                f"producer {marker.producer_id} has epoch {self.epoch}, the marker of its transaction {epoch}"
            )
        if marker.coordinator_epoch < self.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"a marker of producer {marker.producer_id} comes from coordinator epoch {marker.coordinator_epoch}, "
                f"the last one from {self.coordinator_epoch}"
            )
        # A newer coordinator's marker is written in any case: it fences the older coordinators, on all replicas.
        return is_open or epoch > self.epoch or marker.coordinator_epoch > self.coordinator_epoch

    def after(self, batch: ProducerBatch, now_ms: int) -> ProducerState:
        """Return the state after `batch` is written."""
        batches = self.batches[1 - BATCHES_KEPT :] if batch.producer_epoch == self.epoch else ()
        begun = self.transaction_first_offset
        if begun == NONE and batch.is_transactional:
            begun = batch.first_offset
        return ProducerState(
            batch.producer_epoch, self.coordinator_epoch, batch.timestamp_ms, begun, (*batches, batch), now_ms
        )

    def after_marker(self, marker: MarkerBatch, now_ms: int) -> ProducerState:
        """Return the state after `marker` is written, which ends the transaction."""
        batches = self.batches if marker.producer_epoch == self.epoch else ()
        return ProducerState(
            marker.producer_epoch, marker.coordinator_epoch, marker.timestamp_ms, NONE, batches, now_ms
        )


def read_producer_batch(header: BatchHeader, data: bytes) -> ProducerBatch | MarkerBatch | None:
    """Return the producer data of a batch with a producer id in a log; None if it has none.

    data: the whole batch if it is a control batch.
    """
    if not header.is_control:
        return ProducerBatch.of(header, header.last_offset, header.max_timestamp)
    try:
        records = read_records(data)
    except (CorruptRecord, InvalidRecord):
        records = []
    if not records:
        return None  # the cleaner has removed the whole transaction
    marker = read_marker(records[0])
    if marker is None:
        return None
    return MarkerBatch(
        header.producer_id, header.producer_epoch, header.last_offset, marker.is_commit, marker.coordinator_epoch,
        records[0].timestamp_ms,
    )  # fmt: skip


UNKNOWN = ProducerState()


class DuplicateAppend(NamedTuple):
    """A repeated append: its batches are already in the log."""

    first_offset: int
    last_offset: int
    timestamp_ms: int
    """The timestamp of the last batch."""

    def append_info(
        self, append_time_ms: int, leader_epoch: int, *, log_start_offset: int, must_flush: bool
    ) -> LogAppendInfo:
        """Return the result of the repeated append."""
        return LogAppendInfo(
            self.first_offset, self.last_offset, self.timestamp_ms, self.last_offset, append_time_ms, leader_epoch,
            size_bytes=0, log_start_offset=log_start_offset, must_flush=must_flush, is_duplicate=True,
        )  # fmt: skip


Changes = Mapping[int, ProducerState]
"""The new states of producers, by id, after the checked batches are written."""


class ProducerStates:
    """The producers of one partition, and their transactions."""

    __slots__ = ("_states", "_verifications", "transactions")

    def __init__(self, entries: Iterable[ProducerEntry] = (), *, now_ms: int = 0) -> None:
        self._states: dict[int, ProducerState] = {}
        for entry in entries:
            self._states[entry.producer_id] = _after_entry(self.get(entry.producer_id), entry, now_ms)
        self._verifications = Verifications(MAX_PRODUCERS)
        self.transactions = OpenTransactions(
            (state.transaction_first_offset, producer_id)
            for producer_id, state in self._states.items()
            if state.transaction_first_offset != NONE
        )

    def __len__(self) -> int:
        return len(self._states)

    def get(self, producer_id: int) -> ProducerState:
        """Return a producer's state; UNKNOWN, with an epoch of -1, if there is none."""
        return self._states.get(producer_id, UNKNOWN)

    def copy(self) -> dict[int, ProducerState]:
        """Return all states by producer id."""
        return dict(self._states)

    def clear(self) -> None:
        """Forget all producers."""
        self._states.clear()
        self._verifications.void_all()
        self.transactions = OpenTransactions()

    def entries(self) -> list[ProducerEntry]:
        """Return a snapshot's entries, sorted by producer id; Kafka writes them in the order of a hash table.

        Each remembered batch of a late producer has an entry, oldest first, so that a restart does not forget it.
        Kafka writes the last one only, and reads of several the last one.
        """
        late = set(islice(reversed(self._states), LATE_PRODUCERS))
        entries = []
        for producer_id, state in sorted(self._states.items()):
            if producer_id in late:
                entries += _earlier_entries(producer_id, state)
            entries.append(_last_entry(producer_id, state))
        return entries

    def begin_verification(
        self, producer_id: int, producer_epoch: int, first_sequence: int, now_ms: int
    ) -> Verification | None:
        """See `Log.begin_verification`."""
        if self.get(producer_id).is_in_transaction(producer_epoch):
            return None
        return self._verifications.begin(producer_id, producer_epoch, first_sequence, now_ms)

    def check(
        self,
        batches: Sequence[ProducerBatch],
        now_ms: int,
        verification: Verification | None = None,
        *,
        is_coordinators: bool = False,
    ) -> Changes | DuplicateAppend:
        """Check the batches of one append: return the state changes, or a DuplicateAppend if the log has them already.

        is_coordinators: as in `ProducerState.check`. Raises as that does, and InvalidTxnState for a batch that begins a
        transaction without a valid verification.
        """
        last = None if is_coordinators else self.get(batches[-1].producer_id).find_duplicate(batches[-1])
        if last is not None:
            return self._duplicate(last, batches)
        changes: dict[int, ProducerState] = {}
        for batch in batches:
            state = changes.get(batch.producer_id) or self.get(batch.producer_id)
            state.check(batch, is_coordinators=is_coordinators)
            if batch.is_transactional and not state.is_in_transaction(batch.producer_epoch):
                self._check_begin(batch, state, verification)
            changes[batch.producer_id] = state.after(batch, now_ms)
        return changes

    def _check_begin(self, batch: ProducerBatch, state: ProducerState, verification: Verification | None) -> None:
        if len(self.transactions) >= MAX_OPEN:
            raise InvalidTxnState(f"the partition has {MAX_OPEN} open transactions, and takes no more")
        if verification is UNVERIFIED:
            return
        known = self._verifications.get(batch.producer_id)
        if verification is None or verification is not known or verification.producer_epoch != batch.producer_epoch:
            raise InvalidTxnState(f"producer {batch.producer_id} has no transaction in this partition")
        if state is UNKNOWN and NO_SEQUENCE < verification.first_sequence < batch.first_sequence:
            raise OutOfOrderSequenceNumber(
                f"producer {batch.producer_id} sends sequence {batch.first_sequence} before "
                f"{verification.first_sequence}"
            )

    def _duplicate(self, last: ProducerBatch, batches: Sequence[ProducerBatch]) -> DuplicateAppend:
        first = last
        for batch in reversed(batches[:-1]):
            known = self.get(batch.producer_id).find_duplicate(batch)
            if known is None and not batch.is_right_before(first):
                raise OutOfOrderSequenceNumber(
                    f"producer {batch.producer_id} sends sequence {batch.first_sequence} in one request with others "
                    "that have been written before"
                )
            first = known or batch._replace(last_offset=first.first_offset - 1)
        return DuplicateAppend(first.first_offset, last.last_offset, last.timestamp_ms)

    def apply(self, changes: Changes) -> None:
        """Apply the changes that `check` returned, after the batches were written."""
        begun = []
        for producer_id, state in changes.items():
            before = self._put(producer_id, state)
            if state.transaction_first_offset != before.transaction_first_offset:
                begun.append((state.transaction_first_offset, producer_id))
            if len(self._verifications) and (state.transaction_first_offset != NONE or state.epoch != before.epoch):
                self._verifications.void(producer_id)
        for first_offset, producer_id in sorted(begun) if begun else ():
            self.transactions.begin(producer_id, first_offset)

    def _put(self, producer_id: int, state: ProducerState) -> ProducerState:
        """Set a producer's state and return the former one. The dict is ordered by the producers' last batches, except
        for producers in transactions, which never expire."""
        states = self._states
        before = states.pop(producer_id, UNKNOWN)
        states[producer_id] = state
        while len(states) > MAX_PRODUCERS:
            oldest = next(iter(states))
            if (kept := states.pop(oldest)).transaction_first_offset != NONE:
                states[oldest] = kept
                if len(self.transactions) >= MAX_PRODUCERS:  # from a leader that allows more of them
                    break
        return before

    def check_marker(self, marker: MarkerBatch, *, is_strict: bool) -> bool:
        """Check a marker as `ProducerState.check_marker` does; the producer's verification is void from now on."""
        self._verifications.void(marker.producer_id)
        return self.get(marker.producer_id).check_marker(marker, is_strict=is_strict)

    def replay(self, found: ProducerBatch | MarkerBatch, now_ms: int) -> AbortedTransaction | None:
        """Apply a written batch or marker; return the transaction that it aborts, if any."""
        state = self.get(found.producer_id)
        if isinstance(found, ProducerBatch):
            self.apply({found.producer_id: state.after(found, now_ms)})
            return None
        self._verifications.void(found.producer_id)
        self._put(found.producer_id, state.after_marker(found, now_ms))
        first_offset = state.transaction_first_offset
        if first_offset == NONE:
            return None
        stable = self.transactions.end(found.producer_id, found.offset)
        return None if found.is_commit else AbortedTransaction(found.producer_id, first_offset, found.offset, stable)

    def expire(self, now_ms: int, after_ms: int) -> int:
        """Forget the producers that were silent for `after_ms`, except in a transaction; return how many."""
        silent = [
            producer_id
            for producer_id, state in self._states.items()
            if now_ms - state.seen_ms >= after_ms and state.transaction_first_offset == NONE
        ]
        for producer_id in silent:
            del self._states[producer_id]
        self._verifications.expire(now_ms, after_ms)
        return len(silent)


def _after_entry(known: ProducerState, entry: ProducerEntry, now_ms: int) -> ProducerState:
    """Return the state of a snapshot's entry; `known` is that of the producer's entries before it."""
    batches = known.batches[1 - BATCHES_KEPT :] if entry.producer_epoch == known.epoch else ()
    last = ProducerBatch(
        entry.producer_id, entry.producer_epoch, NONE if entry.last_sequence < 0 else entry.first_sequence,
        entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp_ms, False,
    )  # fmt: skip
    return ProducerState(
        entry.producer_epoch, entry.coordinator_epoch, entry.timestamp_ms, entry.transaction_first_offset,
        (*batches, last) if entry.last_offset >= 0 else (), now_ms,
    )  # fmt: skip


def _earlier_entries(producer_id: int, state: ProducerState) -> list[ProducerEntry]:
    """Return the entries of the remembered batches before the last one."""
    return [
        ProducerEntry(
            producer_id, state.epoch, batch.last_sequence, batch.last_offset, batch.offset_delta, batch.timestamp_ms,
            state.coordinator_epoch, NONE,
        )
        for batch in state.batches[:-1]
    ]  # fmt: skip


def _last_entry(producer_id: int, state: ProducerState) -> ProducerEntry:
    last = state.batches[-1] if state.batches else None
    return ProducerEntry(
        producer_id, state.epoch, state.last_sequence, last.last_offset if last else NONE,
        last.offset_delta if last else 0, state.timestamp_ms, state.coordinator_epoch, state.transaction_first_offset,
    )  # fmt: skip
