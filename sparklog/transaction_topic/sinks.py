"""The state of a Spark sink, beside Kafka's fields of a transactional id (transaction/sink_machine.py).

A sink's batch has many producers. They are stored as packed bytes, since every change of the batch writes all of them
again: for each producer its id, epoch and role; then a bitmap of the partitions of each chosen producer. Bit `n`,
counted from the lowest bit of the first byte, stands for the n-th partition of the record.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

NO_BATCH = -1
NO_RUN = ""
_PRODUCER = struct.Struct(">qhb")
_NAMES = {
    "run_id": "runId",
    "batch_id": "batchId",
    "committed_run_id": "committedRunId",
    "committed_batch_id": "committedBatchId",
    "winner_id": "winnerId",
    "winner_epoch": "winnerEpoch",
}


class SinkProducerRole(IntEnum):
    """The role of a sink's producer id in the present batch."""

    SPARE = 0
    """An id of an earlier batch, which a task of the present one may get."""
    JOINED = 1
    """A task attempt writes with it; its records are aborted unless the commit names it."""
    CHOSEN = 2
    """The commit names it."""


class SinkProducer(NamedTuple):
    """A producer id of a sink, with the epoch of its present or its next transaction."""

    producer_id: int
    producer_epoch: int
    role: SinkProducerRole = SinkProducerRole.JOINED
    partitions: bytes = b""
    """The partitions that have records of a chosen one, as a bitmap; otherwise empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkValue:
    """A sink: its batches, and the producers of the present one."""

    run_id: str
    """The run of the query that has written last; NO_RUN if it has given up its batch."""
    former_run_ids: Sequence[str] = ()
    """Earlier runs, the newest last. Each was replaced or has given up, and must not write any more."""
    batch_id: int = NO_BATCH
    """The batch that is open or about to end; otherwise the last one."""
    committed_batch_id: int = NO_BATCH
    committed_run_id: str = ""
    """The last batch that was committed, and the run that did it."""
    winner_id: int = -1
    winner_epoch: int = -1
    """One of the producers that the last commit named, by which a repeated commit is recognized; -1: none."""
    is_one_off: bool = False
    """The sink has only one batch, and expires as other transactional ids do."""
    producers: Sequence[SinkProducer] = ()


def bitmap_size(partitions: int) -> int:
    """Return the bytes of a bitmap of that many partitions."""
    return (partitions + 7) // 8


def sink_fields(value: SinkValue | None) -> dict[str, Any] | None:
    """Return the fields of the record's structure."""
    if value is None:
        return None
    packed = [_PRODUCER.pack(each.producer_id, each.producer_epoch, each.role) for each in value.producers]
    packed += [each.partitions for each in value.producers if each.role is SinkProducerRole.CHOSEN]
    return {
        **{name: getattr(value, ours) for ours, name in _NAMES.items()},
        "formerRunIds": list(value.former_run_ids),
        "isOneOff": int(value.is_one_off),
        "producerCount": len(value.producers),
        "producers": b"".join(packed),
    }


def sink_value(fields: dict[str, Any] | None, partitions: int) -> SinkValue | None:
    """Return the value of the record's structure; partitions: their number in the record.

    Raises ValueError or struct.error if the producers are cut off.
    """
    if fields is None:
        return None
    data, size = fields["producers"], bitmap_size(partitions)
    at = fields["producerCount"] * _PRODUCER.size
    producers: list[SinkProducer] = []
    for producer_id, epoch, role in _PRODUCER.iter_unpack(data[:at]):
        bitmap = b""
        if role == SinkProducerRole.CHOSEN:
            bitmap = data[at : at + size]
            at += size
        producers.append(SinkProducer(producer_id, epoch, SinkProducerRole(role), bitmap))
    if len(producers) != fields["producerCount"] or at != len(data):
        raise ValueError(f"{len(data)} bytes of {fields['producerCount']} producers, where {at} are expected")
    return SinkValue(
        **{ours: fields[name] for ours, name in _NAMES.items()},
        former_run_ids=tuple(fields["formerRunIds"]),
        is_one_off=bool(fields["isOneOff"]),
        producers=tuple(producers),
    )
