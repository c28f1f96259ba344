"""Fetch: read committed batches from partitions, and wait for them.

- Answered at once if `min_bytes` are there, a partition has an error, or `max_wait_ms` is 0; else as soon as one of
  these comes true, at the latest after `max_wait_ms` with what there is. The wait costs nothing: appends wake it.
- Whole batches only. The first may begin before the offset that was asked for: readers skip those records.
- Partitions are read in the order of the request, each up to its own limit, all together up to `max_bytes` and the
  broker's fetch.max.bytes. The first batch found is answered even if it is larger than the limits, so a reader
  always gets on.
- Below the log start or above the log end: OFFSET_OUT_OF_RANGE. At the high watermark: nothing, no error.
- No fetch sessions (KIP-227), no reading from followers (KIP-392).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.base.errors import InvalidRequest, KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.services import Services
from sparklog.log.log import LogSlice


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFetch:
    topic: str
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    max_wait_ms: int = 0
    min_bytes: int = 1
    max_bytes: int
    partitions: Sequence[PartitionFetch]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFetched:
    """`slice` names the bytes, still unread; None where there are none. Offsets are -1 where there is an error.

    `next_offset` is where to read on: past the last batch, or `fetch_offset` where there is none.
    """

    topic: str
    partition: int
    fetch_offset: int
    error: KafkaError | None = None
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    next_offset: int
    slice: LogSlice | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse:
    partitions: Sequence[PartitionFetched]

    @property
    def size_bytes(self) -> int:
        return sum(part.slice.size for part in self.partitions if part.slice)

    @property
    def has_error(self) -> bool:
        return any(part.error for part in self.partitions)


async def handle(services: Services, request: FetchRequest) -> FetchResponse:
    """Raises InvalidRequest for a negative limit, or a partition that is asked for twice."""
    _check(request)

    def attempt() -> FetchResponse | None:
        response = _read(services, request)
        return response if _is_enough(request, response) else None

    names = (TopicPartition(part.topic, part.partition) for part in request.partitions)
    response = await services.waiting.wait(names, attempt, request.max_wait_ms) or _read(services, request)
    for part in response.partitions:
        if part.slice:
            services.metrics.fetched(part.topic, part.slice.size)
    return response


def _check(request: FetchRequest) -> None:
    for name, value in (
        ("max_wait_ms", request.max_wait_ms),
        ("min_bytes", request.min_bytes),
        ("max_bytes", request.max_bytes),
    ):
        if value < 0:
            raise InvalidRequest(f"{name} = {value}: it cannot be negative")
    if len({(part.topic, part.partition) for part in request.partitions}) < len(request.partitions):
        raise InvalidRequest("the request names a partition twice")


def _is_enough(request: FetchRequest, response: FetchResponse) -> bool:
    if request.max_wait_ms == 0 or response.has_error:
        return True
    return response.size_bytes >= max(1, request.min_bytes)


def _read(services: Services, request: FetchRequest) -> FetchResponse:
    left = min(request.max_bytes, services.config.fetch_max_bytes)
    results = []
    found = False
    for part in request.partitions:
        result = _read_partition(services, part, left, min_one_batch=not found)
        if result.slice:
            found = True
            left = max(0, left - result.slice.size)
        results.append(result)
    return FetchResponse(partitions=results)


def _read_partition(services: Services, part: PartitionFetch, left: int, *, min_one_batch: bool) -> PartitionFetched:
    try:
        if part.max_bytes < 0:
            raise InvalidRequest(f"{part.topic}-{part.partition}: partition_max_bytes = {part.max_bytes} is negative")
        replica = services.replicas.get(TopicPartition(part.topic, part.partition))
        replica.partition.check_leader_epoch(part.current_leader_epoch)
        limit = min(part.max_bytes, left)
        found = services.replicas.read(replica, part.fetch_offset, limit, min_one_batch=min_one_batch)
    except KafkaError as error:
        return PartitionFetched(
            topic=part.topic,
            partition=part.partition,
            fetch_offset=part.fetch_offset,
            next_offset=part.fetch_offset,
            error=error,
        )
    return PartitionFetched(
        topic=part.topic,
        partition=part.partition,
        fetch_offset=part.fetch_offset,
        next_offset=max(part.fetch_offset, found.next_offset),
        high_watermark=replica.partition.high_watermark,
        last_stable_offset=replica.partition.last_stable_offset,
        log_start_offset=replica.log.log_start_offset,
        slice=found if found.size else None,
    )


API = Api(name="Fetch", handle=handle, key=1, versions=(4, 18))
