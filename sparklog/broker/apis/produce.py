"""Produce: append record batches to partitions (key 0, versions 3 to 13).

- Batches are stored as they come (records/batch.py: checked, not opened); base offsets in them are ignored.
- acks 1: answered once the leader has appended; -1 (all): once every in-sync replica has, or with REQUEST_TIMED_OUT for
  the partitions that did not get there within `timeout_ms` (their records stay appended); 0: the face sends no answer.
- A topic that does not exist is created with the broker's defaults if the request wants it and
  auto.create.topics.enable is set. Kafka's protocol does that when a client asks for metadata, not here.
- Clients cannot write to internal topics (INVALID_TOPIC_EXCEPTION).
- Where flush.messages asks for it, the answer waits until the records are on the disk; the event loop does not.
- A batch with a producer id must be the next of its producer (log/producer_state.py); one that has been written before
  is answered as it was then, and not written again. Its log append time is given only where timestamps are the
  broker's; Apache Kafka gives the batch's timestamp as that in any case. A negative epoch, and a negative id other than
  -1, are refused with INVALID_RECORD; Apache Kafka takes both, and checks neither.
- Requests append in the order in which their handlers are started, as long as their topics exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from sparklog.base.errors import InvalidRequiredAcks, InvalidTopic, KafkaError, RequestTimedOut
from sparklog.base.ids import INTERNAL_TOPICS, TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.services import Services
from sparklog.cluster.model import Topic

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
DEFAULT_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProduce:
    """Batches for one partition. `data` is written to: the broker puts offsets into it."""

    topic: str
    partition: int
    data: bytearray | memoryview
    current_leader_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceRequest:
    acks: int = ACKS_ALL
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    partitions: Sequence[PartitionProduce]
    creates_topics: bool = True
    """Whether topics that do not exist are created, where the broker does that at all."""
    writes_internal_topics: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProduced:
    """What became of one partition; the offsets are -1 where there is an error."""

    topic: str
    partition: int
    error: KafkaError | None = None
    base_offset: int = -1
    last_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    leader_epoch: int = -1
    """The partition's, told where another broker leads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceResponse:
    partitions: Sequence[PartitionProduced] = field(default_factory=list)


async def handle(services: Services, request: ProduceRequest) -> ProduceResponse:
    """Raises InvalidRequiredAcks for acks other than -1, 0 and 1."""
    if request.acks not in (ACKS_ALL, ACKS_LEADER, ACKS_NONE):
        raise InvalidRequiredAcks(f"acks = {request.acks}: it must be 0, 1 or -1 (all)")
    if request.creates_topics:
        await create_missing_topics(services, request)
    results, pending = _append_all(services, request)
    for number in pending:
        results[number] = await _flush_if_due(services, results[number])
    if pending and request.acks == ACKS_ALL and not all(_is_settled(services, result) for result in results):
        results = await _wait_for_replicas(services, results, request.timeout_ms)
    return ProduceResponse(partitions=results)


def _append_all(services: Services, request: ProduceRequest) -> tuple[list[PartitionProduced], list[int]]:
    """What became of each partition's batches, and the places of those that cannot be answered yet."""
    results: list[PartitionProduced] = []
    pending: list[int] = []
    for part in request.partitions:
        try:
            result, is_pending = _append(services, request, part)
        except KafkaError as error:
            result, is_pending = PartitionProduced(topic=part.topic, partition=part.partition, error=error), False
        if is_pending:
            pending.append(len(results))
        results.append(result)
    return results, pending


async def create_missing_topics(services: Services, request: ProduceRequest) -> None:
    """Create the topics that do not exist, if the broker does that; the append will tell of those it could not."""
    for part in request.partitions:
        if part.topic not in services.metadata and part.topic not in INTERNAL_TOPICS:
            with suppress(KafkaError):
                await find_or_create_topic(services, part.topic)


async def find_or_create_topic(services: Services, name: str) -> Topic:
    """Raises UnknownTopicOrPartition, or what is wrong with the name."""
    if services.config.auto_create_topics_enable and name not in services.metadata:
        await services.topics.create_if_missing(name)
    return services.metadata.get(name)


def _append(services: Services, request: ProduceRequest, part: PartitionProduce) -> tuple[PartitionProduced, bool]:
    """What became of a partition's batches, and whether a flush or replicas must be waited for; raises KafkaError."""
    topic = part.topic
    if topic in INTERNAL_TOPICS and not request.writes_internal_topics:
        raise InvalidTopic(f"{topic} is written by brokers only")
    replica = services.replicas.get(TopicPartition(topic, part.partition))
    appended = services.replicas.append_to(
        replica, part.data, acks=request.acks, leader_epoch=part.current_leader_epoch
    )
    last_offset = appended.last_offset
    if not appended.is_duplicate:
        services.metrics.appended(topic, appended.size_bytes, last_offset - appended.first_offset + 1)
    return PartitionProduced(
        topic=topic,
        partition=part.partition,
        base_offset=appended.first_offset,
        last_offset=last_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=replica.log.log_start_offset,
    ), replica.log.must_flush or not replica.partition.is_committed(last_offset)


async def _flush_if_due(services: Services, result: PartitionProduced) -> PartitionProduced:
    """`result`, once its records are on the disk where flush.messages wants that; in a thread."""
    replica = services.replicas.find(TopicPartition(result.topic, result.partition))
    if replica and replica.log.must_flush:
        try:
            await asyncio.to_thread(replica.log.flush)
        except KafkaError as error:
            return replace(result, error=error)
    return result


async def _wait_for_replicas(
    services: Services, results: Sequence[PartitionProduced], timeout_ms: int
) -> list[PartitionProduced]:
    """`results`, with an error in those that were not committed in time."""
    names = [TopicPartition(result.topic, result.partition) for result in results]
    await services.waiting.wait(
        names, lambda: all(_is_settled(services, result) for result in results) or None, timeout_ms
    )
    return [
        result if _is_settled(services, result) else replace(result, error=_not_in_time(result, timeout_ms))
        for result in results
    ]


def _is_settled(services: Services, result: PartitionProduced) -> bool:
    """Whether there is nothing left to wait for: committed, refused, or the partition is gone."""
    if result.error is not None:
        return True
    replica = services.replicas.find(TopicPartition(result.topic, result.partition))
    return replica is None or replica.partition.is_committed(result.last_offset)


def _not_in_time(result: PartitionProduced, timeout_ms: int) -> RequestTimedOut:
    return RequestTimedOut(f"{result.topic}-{result.partition}: the in-sync replicas took longer than {timeout_ms} ms")


API = Api(name="Produce", handle=handle, key=0, versions=(3, 13))
