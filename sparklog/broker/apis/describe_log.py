"""DescribeLog: describe the logs of this broker's replicas, to plan maintenance.

- Describes the named partitions, or all. A partition that is not here, or whose disk has failed, has an error instead.
- Each replica describes its own log, leader or follower; `is_leader` tells which.
- The high watermark is read before the segments, so it is never beyond their end.
- Files are read in a thread: the timestamps of a segment may have to be read from the disk.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from sparklog.base.acls import AclOperation
from sparklog.base.config import BrokerConfig
from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition, encode_id
from sparklog.broker.api import Api
from sparklog.broker.rights import TOPIC, Either, OnAnswers, OnShown, topic_of
from sparklog.log.description import LogDescription
from sparklog.log.log import Log
from sparklog.replica.manager import ReplicaManager


class DescribeLogRequest(Struct, frozen=True, kw_only=True):
    partitions: Sequence[TopicPartition] = ()
    """Empty: all partitions of this broker."""


class DescribeLogResponse(Struct, frozen=True, kw_only=True):
    broker_id: int
    cluster_id: str
    logs: Mapping[TopicPartition, LogDescription | KafkaError]


async def handle(
    request: DescribeLogRequest, *, cluster_id: str, config: BrokerConfig, replicas: ReplicaManager
) -> DescribeLogResponse:
    """Return a description or an error for each partition; no names: all replicas of this broker."""
    known = {
        name: _begin(cluster_id, config, replicas, name) for name in dict.fromkeys(request.partitions or replicas.names)
    }
    return DescribeLogResponse(
        broker_id=config.broker_id,
        cluster_id=cluster_id,
        logs=await asyncio.to_thread(lambda: {name: _finish(begun) for name, begun in known.items()}),
    )


def _begin(
    cluster_id: str, config: BrokerConfig, replicas: ReplicaManager, name: TopicPartition
) -> tuple[Log, LogDescription] | KafkaError:
    """Return the log, and the part of its description that needs no disk."""
    try:
        replica = replicas.get(name)
    except KafkaError as error:
        return error
    partition, log = replica.partition, replica.log
    return log, LogDescription(
        partition=name,
        cluster_id=cluster_id,
        topic_id=encode_id(log.topic_id) if log.topic_id else "",
        broker_id=config.broker_id,
        is_leader=partition.is_leader,
        leader_epoch=partition.leader_epoch,
        log_start_offset=log.log_start_offset,
        high_watermark=partition.high_watermark,
        last_stable_offset=replica.last_stable_offset,
        config=replica.config,
        producer_ids=tuple(sorted(log.producers)),
    )


def _finish(begun: tuple[Log, LogDescription] | KafkaError) -> LogDescription | KafkaError:
    """Add the description's parts that may need the disk. Blocks."""
    if isinstance(begun, KafkaError):
        return begun
    log, description = begun
    cleaned_offset = log.cleaned_offset  # read before the segments: it only grows, except by truncation
    try:
        segments = log.replacer.describe()
    except KafkaError as error:
        return error
    return replace(
        description,
        cleaned_offset=cleaned_offset,
        folder=os.path.abspath(log.folder),
        log_end_offset=segments[-1].next_offset,
        segments=segments,
        epochs=log.epochs.entries,
    )


API = Api(
    name="DescribeLog",
    handle=handle,
    rights=(
        Either(
            lambda request: not request.partitions,
            OnShown(AclOperation.READ, TOPIC, "logs", topic_of),
            OnAnswers(AclOperation.READ, TOPIC, "logs", topic_of, lambda name, error: error),
        ),
    ),
)
