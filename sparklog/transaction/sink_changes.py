"""The changes of a sink: each returns the value that follows from the present one.

The states are those of transactions (states.py), for one batch after another. All producers that tasks have end with
their batch, each with an epoch higher by one (as in protocol 2 of transactions), and are spare after that: a task of
the next batch gets the same id with the new epoch, so that partitions do not have to remember new ids for each batch.
An id whose epochs are used up is dropped.

A batch begins with more producers than tasks have asked for, so that a join need not be written: which of them are
taken is known to the coordinator alone. After a failover all count as taken.
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
    """Return the part of the value that only sinks have."""
    assert value.sink is not None
    return value.sink


def producers_of(value: TransactionValue) -> Sequence[int]:
    """Return the producer ids that may write or end something now: of an id that is no sink, its only one."""
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
    """Begin a batch with all spare producers, or let fresh ones take part in the present one.

    Fresh ones are also needed to begin a batch if none is spare. expected: partitions that the batch will write.
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
    """Let a run write; the run that it replaces may not write any more."""
    if run_id == sink.run_id:
        return sink
    former = sink.former_run_ids if sink.run_id == NO_RUN else (*sink.former_run_ids, sink.run_id)
    return replace(sink, run_id=run_id, former_run_ids=former[-MOST_FORMER_RUNS:])


def given_up(value: TransactionValue) -> TransactionValue:
    """Keep the present run from writing, while no batch is open."""
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
    """Decide that the batch is committed.

    winners: the partitions of each chosen producer, by its id. taken: the ids that tasks may have; None: all.
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
    """Decide that the open batch is aborted.

    run_id: what replaces the run that has begun it, another run or NO_RUN; None: nothing does.
    """
    sink = sink_of(value) if run_id is None else run_by(sink_of(value), run_id)
    producers = tuple(_left(each, taken) for each in sink.producers)
    return _changed(value, PREPARE_ABORT, now_ms, sink=replace(sink, producers=producers))


def _left(producer: SinkProducer, taken: Container[int] | None) -> SinkProducer:
    """Return a producer that is not chosen. One that no task has is spare again, and needs no markers."""
    if taken is None or producer.producer_id in taken:
        return producer._replace(producer_epoch=producer.producer_epoch + 1)
    return producer._replace(role=SinkProducerRole.SPARE)


def ended(value: TransactionValue, now_ms: int) -> TransactionValue:
    """End the batch: all markers are written."""
    sink = sink_of(value)
    is_commit = state_of(value) is PREPARE_COMMIT
    if is_commit:
        sink = replace(sink, committed_batch_id=sink.batch_id, committed_run_id=sink.run_id)
    left = [each for each in sink.producers if not is_exhausted(each.producer_epoch)]
    spare = () if sink.is_one_off else tuple(SinkProducer(each[0], each[1], SinkProducerRole.SPARE) for each in left)
    target = COMPLETE_COMMIT if is_commit else COMPLETE_ABORT
    return _changed(value, target, now_ms, partitions=(), sink=replace(sink, producers=spare))


def markers_of_batch(value: TransactionValue) -> tuple[SinkMarkers, ...]:
    """Return the markers that end a prepared batch: the producers that are not chosen are aborted."""
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
