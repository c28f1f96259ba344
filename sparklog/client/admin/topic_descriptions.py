"""Topic descriptions completed by the leaders: any broker knows the leaders, only a leader knows its log end offset.

Leaders are asked, all at once, for what is -1 in the first answer. If a leader no longer leads or does not answer, its
partitions get an error; the others are complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparklog.base.errors import KafkaError, NotLeaderOrFollower
from sparklog.client.admin.descriptions import PartitionDescription, TopicDescription, to_topic
from sparklog.client.cluster import Cluster
from sparklog.v1 import admin_pb2

UNKNOWN = -1
Parts = Mapping[tuple[str, int], PartitionDescription]


async def ask_leaders(cluster: Cluster, topics: Sequence[TopicDescription]) -> list[TopicDescription]:
    """Return `topics` completed by their leaders."""
    leaders: dict[int, set[str]] = {}
    for topic in topics:
        for part in topic.partitions:
            if _is_asked(part):
                leaders.setdefault(part.leader, set()).add(topic.name)
    if not leaders:
        return list(topics)
    answers = await asyncio.gather(*(_ask(cluster, leader, sorted(leaders[leader])) for leader in sorted(leaders)))
    told = dict(zip(sorted(leaders), answers, strict=True))
    return [
        replace(topic, partitions=tuple(_whole(topic.name, part, told) for part in topic.partitions))
        for topic in topics
    ]


def _is_asked(part: PartitionDescription) -> bool:
    return part.error is None and part.log_end_offset == UNKNOWN and part.leader != UNKNOWN


async def _ask(cluster: Cluster, leader: int, names: Iterable[str]) -> Parts | KafkaError:
    """Return the leader's description of the topics' partitions, or the error that prevented it."""
    request = admin_pb2.DescribeTopicsRequest(names=list(names))
    try:
        connection = await cluster.broker(leader)
        answer: Any = await connection.call(connection.admin.DescribeTopics, request, cluster.config.request_timeout_ms)
    except KafkaError as error:
        return error
    return {(topic.name, part.partition): part for topic in map(to_topic, answer.topics) for part in topic.partitions}


def _whole(topic: str, part: PartitionDescription, told: Mapping[int, Parts | KafkaError]) -> PartitionDescription:
    if not _is_asked(part):
        return part
    answer = told[part.leader]
    if isinstance(answer, KafkaError):
        return replace(part, error=answer)
    found = answer.get((topic, part.partition))
    if found is None or (found.error is None and found.log_end_offset == UNKNOWN):
        return replace(part, error=NotLeaderOrFollower(f"{topic}-{part.partition} is led by another broker by now"))
    return found
