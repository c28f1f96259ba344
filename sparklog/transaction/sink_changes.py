"""The changes of a sink: each function returns the next value of the sink.

The states are those of transactions (states.py), for one batch after another. The end of a batch ends its producers,
each with an epoch higher by one (as in protocol 2 of transactions), and makes them spare: a task of the next batch gets
the same producer id with the new epoch, so that partitions need not keep new producer ids for each batch. An id whose
epochs are used up is dropped.

A batch begins with more producers than tasks have asked for, so that most joins need no record: only the coordinator's
memory has the producers that are taken. After a failover all count as taken.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from msgspec import Struct

from sparklog.base.ids import TopicPartition
from sparklog.transaction.changes import is_exhausted, state_of, together
from sparklog.transaction.requests import TV2
from sparklog.transaction.sink_requests import JoinBatch
from sparklog.transaction.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
    check_transition,
)
from sparklog.transaction_topic.records import NO_EPOCH, NO_PRODUCER_ID, TransactionValue
from sparklog.transaction_topic.sinks import NO_RUN, SinkProducer, SinkProducerRole, SinkValue, bitmap_size

MOST_FORMER_RUNS = 16


class SinkMarkers(Struct, frozen=True, kw_only=True):
    """The markers of one producer."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    partitions: Sequence[TopicPartition]


def sink_of(value: TransactionValue) -> SinkValue:
    """Return the fields that only sinks have."""
    assert value.sink is not None
    return value.sink


def producers_of(value: TransactionValue) -> Sequence[int]:
    """Return the ids of a sink's producers that are not spare; else, and for other ids, the value's own producer id."""
    if value.sink is None:
        return (value.producer_id,)
    return [each.producer_id for each in value.sink.producers if each.role is not SinkProducerRole.SPARE] or (
        value.producer_id,
    )


def joined(
    value: TransactionValue | None,
    request: JoinBatch,
    fresh_producer_ids: Sequence[int],
    expected: Sequence[TopicPartition],
    now_ms: int,
) -> TransactionValue:
    """Begin a batch with all spare producers, or with fresh ones if none is spare; add fresh ones to an open batch.

    expected: partitions that the new batch begins with
    """
    if value is None:
        sink = SinkValue(run_id=request.run_id, is_one_off=request.is_one_off)
        value = TransactionValue(
            producer_id=fresh_producer_ids[0],
            previous_producer_id=fresh_producer_ids[0],
            producer_epoch=0,
            timeout_ms=request.timeout_ms,
            status=EMPTY,
            last_update_ms=now_ms,
            sink=sink,
        )
    sink = sink_of(value)
    is_open = state_of(value) is ONGOING
    producers = tuple(each._replace(role=SinkProducerRole.JOINED) for each in sink.producers)
    if is_open or not producers:
        producers += tuple(SinkProducer(producer_id, 0) for producer_id in fresh_producer_ids)
    return _changed(
        value,
        ONGOING,
        now_ms,
        timeout_ms=request.timeout_ms,
        start_ms=value.start_ms if is_open else now_ms,
        partitions=value.partitions if is_open else expected,
        client_transaction_version=TV2,
        sink=replace(run_by(sink, request.run_id), batch_id=request.batch_id, producers=producers),
    )


def run_by(sink: SinkValue, run_id: str) -> SinkValue:
    """Make a run the present one; the replaced run may not write any more."""
    if run_id == sink.run_id:
        return sink
    former = sink.former_run_ids if sink.run_id == NO_RUN else (*sink.former_run_ids, sink.run_id)
    return replace(sink, run_id=run_id, former_run_ids=former[-MOST_FORMER_RUNS:])


def without_run(value: TransactionValue) -> TransactionValue:
    """End the present run, while no batch is open."""
    return replace(value, sink=run_by(sink_of(value), NO_RUN))


def enrolled(value: TransactionValue, added: Iterable[TopicPartition], now_ms: int) -> TransactionValue:
    """Add partitions to the open batch."""
    return _changed(value, ONGOING, now_ms, partitions=together((*(value.partitions or ()), *added)))


def committing(
    value: TransactionValue,
    winners: Mapping[int, Sequence[TopicPartition]],
    taken: Container[int] | None,
    now_ms: int,
) -> TransactionValue:
    """Prepare the commit of the batch.

    winners: the partitions of each chosen producer, by its id. taken: the ids that tasks may have; None: all
    """
    partitions = value.partitions or ()
    places = {partition: place for place, partition in enumerate(partitions)}

    def end(producer: SinkProducer) -> SinkProducer:
        if (names := winners.get(producer.producer_id)) is None:
            return _left(producer, taken)
        bits = sum(1 << places[name] for name in set(names))
        bitmap = bits.to_bytes(bitmap_size(len(partitions)), "little")
        return SinkProducer(producer.producer_id, producer.producer_epoch + 1, SinkProducerRole.CHOSEN, bitmap)

    sink = sink_of(value)
    named = min(
        ((each.producer_id, each.producer_epoch) for each in sink.producers if each.producer_id in winners),
        default=None,
    )
    winner_id, winner_epoch = named or (NO_PRODUCER_ID, NO_EPOCH)
    ending = replace(sink, producers=tuple(map(end, sink.producers)), winner_id=winner_id, winner_epoch=winner_epoch)
    return _changed(value, PREPARE_COMMIT, now_ms, sink=ending)


def aborting(
    value: TransactionValue, taken: Container[int] | None, now_ms: int, run_id: str | None = None
) -> TransactionValue:
    """Prepare the abort of the open batch.

    run_id: replaces the present run: another run, or NO_RUN; None: the run stays
    """
    sink = sink_of(value) if run_id is None else run_by(sink_of(value), run_id)
    producers = tuple(_left(each, taken) for each in sink.producers)
    return _changed(value, PREPARE_ABORT, now_ms, sink=replace(sink, producers=producers))


def _left(producer: SinkProducer, taken: Container[int] | None) -> SinkProducer:
    """Return a producer that is not chosen. If no task has it, it is spare again, and needs no markers."""
    if taken is None or producer.producer_id in taken:
        return producer._replace(producer_epoch=producer.producer_epoch + 1)
    return producer._replace(role=SinkProducerRole.SPARE)


def ended(value: TransactionValue, now_ms: int) -> TransactionValue:
    """Complete the batch: all markers are written."""
    sink = sink_of(value)
    is_commit = state_of(value) is PREPARE_COMMIT
    if is_commit:
        sink = replace(sink, committed_batch_id=sink.batch_id, committed_run_id=sink.run_id)
    left = [each for each in sink.producers if not is_exhausted(each.producer_epoch)]
    spare = () if sink.is_one_off else tuple(SinkProducer(each[0], each[1], SinkProducerRole.SPARE) for each in left)
    target = COMPLETE_COMMIT if is_commit else COMPLETE_ABORT
    return _changed(value, target, now_ms, partitions=(), sink=replace(sink, producers=spare))


def markers_of_batch(value: TransactionValue) -> tuple[SinkMarkers, ...]:
    """Return the markers that end a prepared batch: COMMIT for chosen producers, ABORT for the others."""
    partitions = tuple(value.partitions or ())
    found: list[SinkMarkers] = []
    for producer in sink_of(value).producers:
        if producer.role is not SinkProducerRole.SPARE:
            is_commit = producer.role is SinkProducerRole.CHOSEN
            names = _marked(partitions, producer.partitions) if is_commit else partitions
            if names:
                found.append(
                    SinkMarkers(
                        producer_id=producer.producer_id,
                        producer_epoch=producer.producer_epoch,
                        is_commit=is_commit,
                        partitions=names,
                    )
                )
    return tuple(found)


def _marked(partitions: Sequence[TopicPartition], bitmap: bytes) -> tuple[TopicPartition, ...]:
    bits = int.from_bytes(bitmap, "little")
    return tuple(partition for place, partition in enumerate(partitions) if bits >> place & 1)


def _changed(value: TransactionValue, target: TransactionState, now_ms: int, **fields: Any) -> TransactionValue:
    check_transition(state_of(value), target)
    return replace(value, status=target, last_update_ms=now_ms, **fields)
