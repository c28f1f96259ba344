"""OffsetFetch in Kafka's protocol.

- One group up to version 7, several from version 8 on (KIP-709).
- From version 2 on, a null list of topics requests all of them.
- Topics by name up to version 9, by id from version 10 on. An unknown id gets UNKNOWN_TOPIC_ID.
- The error of a group as a whole is in the group's result. Version 1 has no such field; every partition has the error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any
from uuid import UUID

from sparklog.base.errors import KafkaError, UnknownTopicId
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import group_apis
from sparklog.group.requests import CommittedOffset, OffsetFetch, OffsetFetchResponse
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.responses import by_topic
from sparklog.server.kafka.topic_ids import TopicIds
from sparklog.server.kafka.translation import PARTITIONS, KafkaCall, Translation, WideArrays
from sparklog.server.kafka.wide_requests import answer_in_parts

FIRST_WITH_GROUP_ERROR = 2
FIRST_WITH_SEVERAL = 8
FIRST_WITH_IDS = 10
NOTHING = CommittedOffset(partition=TopicPartition("", -1))
WIDE = WideArrays(
    ("groups", *PARTITIONS.request_arrays),
    ("groups", *PARTITIONS.response_arrays),
    once=True,
    beside=("member_id", "member_epoch"),
)
_FetchedGroup = tuple[Message, OffsetFetchResponse]
"""A requested group, and the coordinator's answer."""
_PartitionRow = tuple[str | UUID, dict[str, Any] | None]
"""A topic's name or id, and the fields of one of its partitions."""


async def serve(call: KafkaCall, request: Message) -> Message:
    """Return the offsets of each group; many offsets are translated in parts."""
    ids = TopicIds(call.broker)

    async def fetch(asked: Message) -> _FetchedGroup:
        return asked, await call.serve(group_apis.OFFSET_FETCH, _to_offset_fetch(request, asked, ids))

    groups = await call.broker.slices.each(_requested_groups(call, request), fetch)
    return await answer_in_parts(
        call, groups, partial(_rows, call, ids), partial(_make_answer, call), WIDE.response_arrays
    )


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    """Return the answer with the error in each group or, in version 1, in each partition."""
    ids = TopicIds(call.broker)
    groups = [(asked, OffsetFetchResponse(error=error)) for asked in _requested_groups(call, request)]
    return _make_answer(call, [(group, list(_rows(call, ids, group))) for group in groups])


def _requested_groups(call: KafkaCall, request: Message) -> Sequence[Message]:
    """Return the requested groups. In old versions, the request itself has the fields of one group."""
    groups: Sequence[Message] = request.groups if call.version >= FIRST_WITH_SEVERAL else (request,)
    return groups


def _to_offset_fetch(request: Message, asked: Message, ids: TopicIds) -> OffsetFetch:
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


def _make_answer(call: KafkaCall, groups: Sequence[tuple[_FetchedGroup, list[_PartitionRow]]]) -> Message:
    made = [_group(call, asked, response, rows) for (asked, response), rows in groups]
    return call.answer(groups=made) if call.version >= FIRST_WITH_SEVERAL else call.answer(**made[0])


def _group(call: KafkaCall, asked: Message, response: OffsetFetchResponse, rows: list[_PartitionRow]) -> dict[str, Any]:
    name = "topic_id" if call.version >= FIRST_WITH_IDS else "name"
    topics = [
        {name: key, "partitions": [part for _, part in parts if part]} for key, parts in groupby(rows, itemgetter(0))
    ]
    fields = {"topics": topics, "error_code": response.error}
    return {"group_id": asked.group_id, **fields} if call.version >= FIRST_WITH_SEVERAL else fields


def _rows(call: KafkaCall, ids: TopicIds, group: _FetchedGroup) -> Iterator[_PartitionRow]:
    """Yield the partitions of a group, each with its topic's key, and None for a topic without partitions."""
    asked, response = group
    if response.error is None:
        yield from _committed_rows(call, ids, response.offsets)
        for topic in asked.topics or ():
            if ids.name_of(topic) is None:
                error = UnknownTopicId("there is no topic with this id")
                yield from _error_rows(topic.topic_id, topic.partition_indexes, error)
    elif call.version < FIRST_WITH_GROUP_ERROR:
        for topic in asked.topics:
            yield from _error_rows(topic.name, topic.partition_indexes, response.error)


def _committed_rows(call: KafkaCall, ids: TopicIds, offsets: Sequence[CommittedOffset]) -> Iterator[_PartitionRow]:
    """Yield the committed offsets. A deleted topic has no id, so only versions with names include it."""
    for name, found in by_topic((each.partition.topic, each) for each in offsets).items():
        key = ids.id_of(name) if call.version >= FIRST_WITH_IDS else name
        if key is not None:
            for each in found:
                yield key, _part(each.partition.partition, each, each.error)


def _error_rows(key: str | UUID, numbers: Sequence[int], error: KafkaError) -> Iterator[_PartitionRow]:
    if not numbers:
        yield key, None
    for number in numbers:
        yield key, _part(number, NOTHING, error)


def _part(number: int, found: CommittedOffset, error: KafkaError | None) -> dict[str, Any]:
    return {
        "partition_index": number,
        "committed_offset": found.offset,
        "committed_leader_epoch": found.leader_epoch,
        "metadata": found.metadata,
        "error_code": error,
    }


TRANSLATION = Translation(api=group_apis.OFFSET_FETCH, serve=serve, refuse=refuse, wide=WIDE)
