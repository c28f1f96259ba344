"""Topics of UpdateMetadata. Their partitions use LeaderAndIsr's message without the fields that only replicas need."""

from __future__ import annotations

from typing import Any

from sparklog.base.message_mapping import to_message, to_value
from sparklog.cluster.messages import TopicState, UpdateMetadata
from sparklog.cluster.model import PartitionInfo
from sparklog.v1 import replication_pb2 as pb


def topics_message(request: UpdateMetadata) -> dict[str, Any]:
    return {"topics": [_topic_message(topic) for topic in request.topics]}


def topics(message: Any) -> dict[str, Any]:
    return {"topics": tuple(_topic(topic) for topic in message.topics)}


def _topic_message(topic: TopicState) -> pb.TopicState:
    message: pb.TopicState = to_message(
        topic, pb.TopicState, partitions=[_partition_message(*each) for each in enumerate(topic.partitions)]
    )
    return message


def _partition_message(number: int, part: PartitionInfo) -> pb.PartitionState:
    return pb.PartitionState(
        partition=number,
        leader=part.leader,
        leader_epoch=part.leader_epoch,
        isr=part.in_sync_replicas,
        replicas=part.replicas,
        adding=part.adding,
        removing=part.removing,
        partition_epoch=part.partition_epoch,
    )


def _topic(message: Any) -> TopicState:
    state: TopicState = to_value(message, TopicState, partitions=tuple(_partition(part) for part in message.partitions))
    return state


def _partition(message: Any) -> PartitionInfo:
    info: PartitionInfo = to_value(message, PartitionInfo, in_sync_replicas=tuple(message.isr))
    return info
