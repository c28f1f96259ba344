"""The changes of a transactional id: each function returns the next value of the id.

As org.apache.kafka.coordinator.transaction.TransactionMetadata. Each change is one of the table's transitions
(states.py). `previous_producer_id` always names the producer id before the change.

A client never gets LAST_EPOCH: with it, the coordinator fences the producer that has the epoch before. After that the
transactional id continues with a fresh producer id, at epoch 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sparklog.base.ids import TopicPartition
from sparklog.transaction.requests import TV1, TV2
from sparklog.transaction.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    TransactionState,
    check_transition,
)
from sparklog.transaction_topic.records import NO_PRODUCER_ID, NO_TIMESTAMP, TransactionValue

LAST_EPOCH = (1 << 15) - 1


def state_of(value: TransactionValue) -> TransactionState:
    """Return the state of a transactional id."""
    return TransactionState(value.status)


def is_exhausted(epoch: int) -> bool:
    """Return whether a producer with this epoch cannot get a higher one."""
    return epoch >= LAST_EPOCH - 1


def is_following(value: TransactionValue, producer_id: int, epoch: int) -> bool:
    """Return whether this is the fresh producer id that follows the present one once the markers are written.

    The answer to EndTxn names it before that, so its producer may already send requests with it.
    """
    return producer_id == value.next_producer_id != NO_PRODUCER_ID and epoch == 0


def created(producer_id: int, timeout_ms: int, now_ms: int) -> TransactionValue:
    """Return the value of a new id."""
    return TransactionValue(
        producer_id=producer_id,
        previous_producer_id=producer_id,
        producer_epoch=0,
        timeout_ms=timeout_ms,
        status=EMPTY,
        last_update_ms=now_ms,
    )


def initialised(
    value: TransactionValue, *, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
) -> TransactionValue:
    """Give the transactional id to a producer with this producer id and epoch. No transaction may be open."""
    is_same = (producer_id, epoch) == (value.producer_id, value.producer_epoch)
    return _changed(
        value,
        EMPTY,
        now_ms,
        # A retry must keep the previous id, by which the retrying producer is recognized.
        previous_producer_id=value.previous_producer_id if is_same else value.producer_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        timeout_ms=timeout_ms,
        partitions=None,
        start_ms=NO_TIMESTAMP,
    )


def extended(
    value: TransactionValue, partitions: Iterable[TopicPartition], version: int, now_ms: int
) -> TransactionValue:
    """Add partitions to the transaction, and begin one if there is none."""
    is_open = state_of(value) is ONGOING
    present = (value.partitions or ()) if is_open else ()
    return _changed(
        value,
        ONGOING,
        now_ms,
        partitions=together((*present, *partitions)),
        start_ms=value.start_ms if is_open else now_ms,
        client_transaction_version=version,
    )


def prepared(
    value: TransactionValue, *, is_commit: bool, version: int, fresh_producer_id: int, now_ms: int
) -> TransactionValue:
    """Prepare the transaction's end. In TV2 this raises the epoch; the fresh producer id replaces an exhausted one."""
    target = PREPARE_COMMIT if is_commit else PREPARE_ABORT
    is_open = state_of(value) is ONGOING
    present = value if is_open else replace(value, partitions=(), start_ms=now_ms)
    if version < TV2:
        return _changed(present, target, now_ms, client_transaction_version=TV1)
    return _raised(_changed(present, target, now_ms), value.producer_epoch, fresh_producer_id)


def fenced(value: TransactionValue, *, last_epoch: int, fresh_producer_id: int, now_ms: int) -> TransactionValue:
    """Prepare the abort of the transaction with a higher epoch than its producer has, which fences the producer.

    The epoch is raised once, here, and not again by the abort. last_epoch: the producer's epoch if it may get the new
    one, NO_EPOCH if another producer takes over
    """
    check_transition(state_of(value), PREPARE_EPOCH_FENCE)
    fence = replace(value, status=PREPARE_EPOCH_FENCE)
    return _raised(_changed(fence, PREPARE_ABORT, now_ms), last_epoch, fresh_producer_id)


def completed(value: TransactionValue, now_ms: int) -> TransactionValue:
    """Complete the transaction: all markers are written. A fresh producer id takes effect here, at epoch 0."""
    target = COMPLETE_COMMIT if state_of(value) is PREPARE_COMMIT else COMPLETE_ABORT
    ended = _changed(value, target, now_ms, partitions=())
    if value.next_producer_id == NO_PRODUCER_ID:
        return ended
    return replace(ended, producer_id=value.next_producer_id, producer_epoch=0, next_producer_id=NO_PRODUCER_ID)


def _raised(value: TransactionValue, last_epoch: int, fresh_producer_id: int) -> TransactionValue:
    epoch = min(value.producer_epoch + 1, LAST_EPOCH)
    return replace(
        value,
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        next_producer_id=fresh_producer_id if is_exhausted(value.producer_epoch) else NO_PRODUCER_ID,
        # Kafka before 4.3 may have opened a transaction with the last epoch. Partitions refuse markers of TV2 whose
        # epoch is not higher than that of the transaction.
        client_transaction_version=TV2 if epoch > value.producer_epoch else TV1,
    )


def _changed(value: TransactionValue, target: TransactionState, now_ms: int, **fields: Any) -> TransactionValue:
    check_transition(state_of(value), target)
    fields = {"previous_producer_id": value.producer_id, **fields}
    return replace(value, status=target, last_update_ms=now_ms, **fields)


def together(partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    """Return the partitions without duplicates, grouped by topic, as records have them."""
    by_topic: dict[str, list[TopicPartition]] = {}
    for partition in dict.fromkeys(partitions):
        by_topic.setdefault(partition.topic, []).append(partition)
    return tuple(partition for found in by_topic.values() for partition in found)
