"""Lookup of offsets by position or timestamp, at the partitions' leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Literal, NamedTuple

from sparklog.base.errors import ConfigError, RetriableError, UnknownTopicOrPartition
from sparklog.base.ids import TopicPartition
from sparklog.base.message_mapping import read_error
from sparklog.client.cluster import Cluster
from sparklog.client.connection import Connection
from sparklog.client.retry import retrying
from sparklog.v1 import log_pb2

EARLIEST: Literal["earliest"] = "earliest"
LATEST: Literal["latest"] = "latest"
MAX_TIMESTAMP: Literal["max_timestamp"] = "max_timestamp"

OffsetSpec = Literal["earliest", "latest", "max_timestamp"] | int
"""The log start offset; the high watermark; the record with the highest timestamp; or, as a number, the first record
with that timestamp (ms since the epoch) or a later one."""


ISOLATION_LEVELS: Mapping[str, log_pb2.IsolationLevel] = {
    "read_uncommitted": log_pb2.READ_UNCOMMITTED,
    "read_committed": log_pb2.READ_COMMITTED,
}


class ListedOffset(NamedTuple):
    """An offset and the timestamp of its record in ms.

    Both are -1 if no record matches; the timestamp is -1 for earliest and latest.
    """

    offset: int
    timestamp_ms: int


async def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, OffsetSpec],
    timeout_ms: int,
    isolation_level: str = "read_uncommitted",
) -> dict[TopicPartition, ListedOffset]:
    """Return the offset of each partition; retries after retriable errors for `timeout_ms`.

    With the isolation level "read_committed", "latest" is the last stable offset, and a timestamp finds records below
    it. Raises an error that is not retriable, and UnknownTopicOrPartition, at once; the last retriable error after
    `timeout_ms`; ConfigError for another isolation level.
    """
    if isolation_level not in ISOLATION_LEVELS:
        raise ConfigError(f"isolation_level = {isolation_level!r}: it must be {' or '.join(ISOLATION_LEVELS)}")
    found: dict[TopicPartition, ListedOffset] = {}

    async def attempt() -> None:
        missing = [partition for partition in wanted if partition not in found]
        groups = await cluster.by_leader(missing, timeout_ms)
        answers = await asyncio.gather(
            *(
                _ask(cluster, leader, {item: wanted[item] for item in items}, isolation_level)
                for leader, items in groups.items()
            )
        )
        for answer in answers:
            found.update(answer)

    await retrying(
        attempt,
        final=UnknownTopicOrPartition,
        timeout_ms=timeout_ms,
        backoff=cluster.backoff,
        clock=cluster.clock,
    )
    return found


async def _ask(
    cluster: Cluster,
    leader: Connection,
    wanted: Mapping[TopicPartition, OffsetSpec],
    isolation_level: str,
) -> dict[TopicPartition, ListedOffset]:
    request = log_pb2.ListOffsetsRequest(
        isolation_level=ISOLATION_LEVELS[isolation_level],
        partitions=[_query(partition, spec, cluster.known_epoch(partition)) for partition, spec in wanted.items()],
    )
    try:
        answer = await leader.call(leader.log.ListOffsets, request, cluster.config.request_timeout_ms)
        for part in answer.partitions:
            if error := read_error(part):
                raise error
    except RetriableError:
        for partition in wanted:
            cluster.outdated(partition.topic)
        raise
    return {
        TopicPartition(part.topic, part.partition): ListedOffset(part.offset, part.timestamp_ms)
        for part in answer.partitions
    }


def _query(partition: TopicPartition, spec: OffsetSpec, epoch: int | None) -> log_pb2.PartitionOffsetQuery:
    """Return the query, with the leader epoch if known, so that a replaced leader refuses it."""
    query = log_pb2.PartitionOffsetQuery(
        topic=partition.topic, partition=partition.partition, current_leader_epoch=epoch
    )
    if isinstance(spec, int):
        query.timestamp_ms = spec
    else:
        setattr(query, spec, True)
    return query
