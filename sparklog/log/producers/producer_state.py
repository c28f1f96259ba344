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
They are duplicates if the last of them is one, and each of the others is also one or directly precedes the batch after
it: such a batch was written with its successor, but is no longer remembered.

Batches from a leader or from the log are not checked again. Transactions are not checked either, because sparklog does
not support them: transactional batches and markers in a log that Apache Kafka wrote only update the state here, as in
Kafka's own snapshots.

A producer is forgotten after producer.id.expiration.ms without a batch, by this broker's clock, unless it is in a
transaction. If there are more than `MAX_PRODUCERS`, the one that was silent longest is forgotten. Apache Kafka uses the
timestamp of the last record instead, so it soon forgets a producer of old records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sparklog.base.errors import (
    CorruptRecord,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
)
from sparklog.log.producers.snapshots import NONE, ProducerEntry
from sparklog.log.slice import Appended
from sparklog.records.batch import TRANSACTIONAL_BIT, BatchHeader
from sparklog.records.markers import read_marker
from sparklog.records.records import read_records

BATCHES_KEPT = 5
MAX_PRODUCERS = 50_000  # per partition: about 70 MB
_SEQUENCES = 1 << 31


class Numbered(NamedTuple):
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
    def of(cls, header: BatchHeader, last_offset: int, timestamp_ms: int) -> Numbered:
        first, delta = header.base_sequence, header.last_offset_delta
        return cls(
            header.producer_id, header.producer_epoch, first, NONE if first < 0 else (first + delta) % _SEQUENCES,
            last_offset, delta, timestamp_ms, bool(header.attributes & TRANSACTIONAL_BIT),
        )  # fmt: skip

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta

    def is_right_before(self, other: Numbered) -> bool:
        """Return whether `other` is the next batch of the same producer."""
        return (
            (self.producer_id, self.producer_epoch) == (other.producer_id, other.producer_epoch)
            and (self.last_sequence + 1) % _SEQUENCES == other.first_sequence
        )  # fmt: skip


class Marker(NamedTuple):
    """The end of a transaction, from a control batch in the log."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    timestamp_ms: int


class ProducerState(NamedTuple):
    """The state of one producer; -1 for every value that does not exist."""

    epoch: int = NONE
    coordinator_epoch: int = NONE
    timestamp_ms: int = NONE
    """The timestamp of the last batch or transaction marker."""
    transaction_first_offset: int = NONE
    batches: tuple[Numbered, ...] = ()
    """The last batches of this epoch, oldest first; at most `BATCHES_KEPT`."""
    seen_ms: int = 0
    """The broker's time when the last batch or marker arrived or was read from the log."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NONE

    def find_duplicate(self, batch: Numbered) -> Numbered | None:
        """Return the remembered batch with the same epoch and sequences, or None."""
        if batch.producer_epoch == self.epoch:
            for known in self.batches:
                if known.last_sequence == batch.last_sequence and known.first_sequence == batch.first_sequence:
                    return known
        return None

    def check(self, batch: Numbered) -> None:
        """Raise InvalidProducerEpoch, OutOfOrderSequenceNumber or InvalidTxnState if `batch` is not the next one."""
        if batch.producer_epoch == self.epoch:
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

    def after(self, batch: Numbered, now_ms: int) -> ProducerState:
        """Return the state after `batch` is written."""
        batches = self.batches[1 - BATCHES_KEPT :] if batch.producer_epoch == self.epoch else ()
        begun = self.transaction_first_offset
        if begun == NONE and batch.is_transactional:
            begun = batch.first_offset
        return ProducerState(
            batch.producer_epoch, self.coordinator_epoch, batch.timestamp_ms, begun, (*batches, batch), now_ms
        )

    def after_marker(self, marker: Marker, now_ms: int) -> ProducerState:
        """Return the state after `marker` is written, which ends the transaction."""
        batches = self.batches if marker.producer_epoch == self.epoch else ()
        return ProducerState(
            marker.producer_epoch, marker.coordinator_epoch, marker.timestamp_ms, NONE, batches, now_ms
        )


def read_numbered(header: BatchHeader, data: bytes) -> Numbered | Marker | None:
    """Return the producer data of a batch with a producer id in a log; None if it has none.

    data: the whole batch if it is a control batch.
    """
    if not header.is_control:
        return Numbered.of(header, header.last_offset, header.max_timestamp)
    try:
        records = read_records(data)
    except (CorruptRecord, InvalidRecord):
        records = []
    if not records:
        return None  # the cleaner has removed the whole transaction
    marker = read_marker(records[0])
    if marker is None:
        return None
    return Marker(header.producer_id, header.producer_epoch, marker.coordinator_epoch, records[0].timestamp_ms)


UNKNOWN = ProducerState()


class Duplicate(NamedTuple):
    """Batches that are already in the log."""

    first_offset: int
    last_offset: int
    timestamp_ms: int
    """The timestamp of the last batch."""

    def answer(self, append_time_ms: int, leader_epoch: int, *, log_start_offset: int, must_flush: bool) -> Appended:
        """Return the result of an append of these batches."""
        return Appended(
            self.first_offset, self.last_offset, self.timestamp_ms, self.last_offset, append_time_ms, leader_epoch,
            size_bytes=0, log_start_offset=log_start_offset, must_flush=must_flush, is_duplicate=True,
        )  # fmt: skip


Changes = Mapping[int, ProducerState]
"""The new states of producers, by id, after the checked batches are written."""


class ProducerStates:
    """The producers of one partition."""

    __slots__ = ("_states",)

    def __init__(self, entries: Iterable[ProducerEntry] = (), *, now_ms: int = 0) -> None:
        self._states = {entry.producer_id: _from_entry(entry, now_ms) for entry in entries}

    def __len__(self) -> int:
        return len(self._states)

    def get(self, producer_id: int) -> ProducerState:
        return self._states.get(producer_id, UNKNOWN)

    def copy(self) -> dict[int, ProducerState]:
        """Return all states by producer id."""
        return dict(self._states)

    def clear(self) -> None:
        """Forget all producers."""
        self._states.clear()

    def entries(self) -> list[ProducerEntry]:
        """Return a snapshot's entries, sorted by producer id; Kafka writes them in the order of a hash table."""
        return [_to_entry(producer_id, state) for producer_id, state in sorted(self._states.items())]

    def check(self, batches: Sequence[Numbered], now_ms: int) -> Changes | Duplicate:
        """Check the batches of one append: return the state changes, or the duplicates that they are.

        Raises as `ProducerState.check` does.
        """
        if last := self.get(batches[-1].producer_id).find_duplicate(batches[-1]):
            return self._duplicate(last, batches)
        changes: dict[int, ProducerState] = {}
        for batch in batches:
            state = changes.get(batch.producer_id) or self.get(batch.producer_id)
            state.check(batch)
            changes[batch.producer_id] = state.after(batch, now_ms)
        return changes

    def _duplicate(self, last: Numbered, batches: Sequence[Numbered]) -> Duplicate:
        first = last
        for batch in reversed(batches[:-1]):
            known = self.get(batch.producer_id).find_duplicate(batch)
            if known is None and not batch.is_right_before(first):
                raise OutOfOrderSequenceNumber(
                    f"producer {batch.producer_id} sends sequence {batch.first_sequence} in one request with others "
                    "that have been written before"
                )
            first = known or batch._replace(last_offset=first.first_offset - 1)
        return Duplicate(first.first_offset, last.last_offset, last.timestamp_ms)

    def apply(self, changes: Changes) -> None:
        """Apply the changes that `check` returned, after the batches were written."""
        for producer_id, state in changes.items():
            self._states.pop(producer_id, None)  # keep the dict in the order in which producers were last seen
            self._states[producer_id] = state
        while len(self._states) > MAX_PRODUCERS:
            del self._states[next(iter(self._states))]

    def replay(self, found: Numbered | Marker, now_ms: int) -> None:
        """Apply a batch or marker from the log, which its leader has checked."""
        state = self.get(found.producer_id)
        after = state.after(found, now_ms) if isinstance(found, Numbered) else state.after_marker(found, now_ms)
        self.apply({found.producer_id: after})

    def expire(self, now_ms: int, after_ms: int) -> int:
        """Forget the producers that were silent for `after_ms`, except in a transaction; return how many."""
        silent = [
            producer_id
            for producer_id, state in self._states.items()
            if now_ms - state.seen_ms >= after_ms and state.transaction_first_offset == NONE
        ]
        for producer_id in silent:
            del self._states[producer_id]
        return len(silent)


def _from_entry(entry: ProducerEntry, now_ms: int) -> ProducerState:
    last = Numbered(
        entry.producer_id, entry.producer_epoch, NONE if entry.last_sequence < 0 else entry.first_sequence,
        entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp_ms, False,
    )  # fmt: skip
    return ProducerState(
        entry.producer_epoch, entry.coordinator_epoch, entry.timestamp_ms, entry.transaction_first_offset,
        (last,) if entry.last_offset >= 0 else (), now_ms,
    )  # fmt: skip


def _to_entry(producer_id: int, state: ProducerState) -> ProducerEntry:
    last = state.batches[-1] if state.batches else None
    return ProducerEntry(
        producer_id, state.epoch, state.last_sequence, last.last_offset if last else NONE,
        last.offset_delta if last else 0, state.timestamp_ms, state.coordinator_epoch, state.transaction_first_offset,
    )  # fmt: skip
