"""OffsetCommit in Kafka's protocol: topics by name up to version 9, by id from version 10 on.

Null metadata becomes an empty text.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.base.errors import KafkaError, UnknownTopicId
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import offset_commit
from sparklog.group.requests import OffsetCommit, OffsetToCommit
from sparklog.server.kafka.messages import Message, whole_ms
from sparklog.server.kafka.topic_ids import TopicIds
from sparklog.server.kafka.translation import PARTITIONS, KafkaCall, Translation

FIRST_WITH_GROUP_ID_NOT_FOUND = 9
NO_RETENTION = -1


async def serve(call: KafkaCall, request: Message) -> Message:
    """Return the error of each partition, or none."""
    ids = TopicIds(call.broker)
    retention_time = getattr(request, "retention_time", None)  # of versions 2 to 4
    retention_ms = NO_RETENTION if retention_time is None else whole_ms(retention_time)
    wanted = OffsetCommit(
        group_id=request.group_id,
        generation_or_epoch=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=getattr(request, "group_instance_id", None),
        retention_ms=None if retention_ms == NO_RETENTION else retention_ms,
        tells_missing_groups=call.version >= FIRST_WITH_GROUP_ID_NOT_FOUND,
        offsets=_offsets(request, ids),
    )
    response = await call.serve(offset_commit.API, wanted)
    return _answer(call, request, ids, response.errors)


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    """Return the answer with the error in each partition."""
    ids = TopicIds(call.broker)
    return _answer(call, request, ids, {each.partition: error for each in _offsets(request, ids)})


def _offsets(request: Message, ids: TopicIds) -> list[OffsetToCommit]:
    return [
        OffsetToCommit(
            partition=TopicPartition(name, part.partition_index),
            offset=part.committed_offset,
            leader_epoch=getattr(part, "committed_leader_epoch", -1),
            metadata=part.committed_metadata or "",
        )
        for topic in request.topics
        if (name := ids.name_of(topic)) is not None
        for part in topic.partitions
    ]


def _answer(
    call: KafkaCall, request: Message, ids: TopicIds, errors: Mapping[TopicPartition, KafkaError | None]
) -> Message:
    """Return the topics and partitions of the request. Those with an unknown topic id get UNKNOWN_TOPIC_ID."""
    unknown = UnknownTopicId("there is no topic with this id")
    topics = []
    for topic in request.topics:
        name = ids.name_of(topic)
        partitions = [
            {
                "partition_index": part.partition_index,
                "error_code": errors.get(TopicPartition(name or "", part.partition_index), unknown),
            }
            for part in topic.partitions
        ]
        topics.append({"name": name, "topic_id": getattr(topic, "topic_id", None), "partitions": partitions})
    return call.answer(topics=topics)


TRANSLATION = Translation(api=offset_commit.API, serve=serve, refuse=refuse, wide=PARTITIONS)
