"""OffsetFetch in Kafka's protocol.

- One group up to version 7, several from version 8 on (KIP-709).
- From version 2 on, a null list of topics requests all of them.
- Topics by name up to version 9, by id from version 10 on. An unknown id gets UNKNOWN_TOPIC_ID.
- The error of a group as a whole is in the group's result. Version 1 has no such field; every partition has the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparklog.base.errors import KafkaError, UnknownTopicId
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import group_apis
from sparklog.group.requests import CommittedOffset, OffsetFetch, OffsetFetchResponse
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.responses import by_topic
from sparklog.server.kafka.topic_ids import TopicIds
from sparklog.server.kafka.translation import PARTITIONS, KafkaCall, Translation, Wide

FIRST_WITH_GROUP_ERROR = 2
FIRST_WITH_SEVERAL = 8
FIRST_WITH_IDS = 10
NOTHING = CommittedOffset(partition=TopicPartition("", -1))


async def serve(call: KafkaCall, request: Message) -> Message:
    ids = TopicIds(call.broker.metadata)
    groups = [
        _group(call, asked, ids, await call.broker.serve(group_apis.OFFSET_FETCH, _wanted(request, asked, ids)))
        for asked in _asked(call, request)
    ]
    return call.answer(groups=groups) if call.version >= FIRST_WITH_SEVERAL else call.answer(**groups[0])


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    ids = TopicIds(call.broker.metadata)
    groups = [_group(call, asked, ids, OffsetFetchResponse(error=error)) for asked in _asked(call, request)]
    return call.answer(groups=groups) if call.version >= FIRST_WITH_SEVERAL else call.answer(**groups[0])


def _asked(call: KafkaCall, request: Message) -> Sequence[Message]:
    """Return the requested groups. In old versions, the request itself has the fields of one group."""
    groups: Sequence[Message] = request.groups if call.version >= FIRST_WITH_SEVERAL else (request,)
    return groups


def _wanted(request: Message, asked: Message, ids: TopicIds) -> OffsetFetch:
    partitions = None
    if asked.topics is not None:
        partitions = [
            TopicPartition(name, number)
            for topic in asked.topics
            if (name := ids.name_of(topic)) is not None
            for number in topic.partition_indexes
        ]
    return OffsetFetch(
        group_id=asked.group_id,
        partitions=partitions,
        member_id=getattr(asked, "member_id", None),
        member_epoch=getattr(asked, "member_epoch", -1),
        require_stable=getattr(request, "require_stable", False),
    )


def _group(call: KafkaCall, asked: Message, ids: TopicIds, response: OffsetFetchResponse) -> dict[str, Any]:
    topics: list[dict[str, Any]] = []
    if response.error is None:
        topics = _found(call, ids, response.offsets) + _unknown(asked, ids)
    elif call.version < FIRST_WITH_GROUP_ERROR:
        topics = [_refused(topic.name, topic.partition_indexes, response.error) for topic in asked.topics]
    fields = {"topics": topics, "error_code": response.error}
    return {"group_id": asked.group_id, **fields} if call.version >= FIRST_WITH_SEVERAL else fields


def _found(call: KafkaCall, ids: TopicIds, offsets: Sequence[CommittedOffset]) -> list[dict[str, Any]]:
    """Return the committed offsets. A deleted topic has no id, so only versions with names include it."""
    topics = by_topic((each.partition.topic, _part(each.partition.partition, each, each.error)) for each in offsets)
    if call.version < FIRST_WITH_IDS:
        return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    return [
        {"topic_id": topic_id, "partitions": partitions}
        for name, partitions in topics.items()
        if (topic_id := ids.id_of(name)) is not None
    ]


def _unknown(asked: Message, ids: TopicIds) -> list[dict[str, Any]]:
    error = UnknownTopicId("there is no topic with this id")
    return [
        {
            "topic_id": topic.topic_id,
            "partitions": [_part(number, NOTHING, error) for number in topic.partition_indexes],
        }
        for topic in asked.topics or ()
        if ids.name_of(topic) is None
    ]


def _refused(name: str, numbers: Sequence[int], error: KafkaError) -> dict[str, Any]:
    return {"name": name, "partitions": [_part(number, NOTHING, error) for number in numbers]}


def _part(number: int, found: CommittedOffset, error: KafkaError | None) -> dict[str, Any]:
    return {
        "partition_index": number,
        "committed_offset": found.offset,
        "committed_leader_epoch": found.leader_epoch,
        "metadata": found.metadata,
        "error_code": error,
    }


TRANSLATION = Translation(
    api=group_apis.OFFSET_FETCH,
    serve=serve,
    refuse=refuse,
    wide=Wide(
        ("groups", *PARTITIONS.asks),
        ("groups", *PARTITIONS.tells),
        once=True,
        beside=("member_id", "member_epoch"),
    ),
)
