"""Completes topic descriptions: any broker knows the leaders, but only a leader knows its log end offset.

All leaders are asked at the same time for the values that are -1 in the first answer. If a leader does not answer, or
leads a partition no longer, its partitions get an error; the others are complete.
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
    """Return the descriptions, completed with the values of the partitions' leaders."""
    leaders: dict[int, set[str]] = {}
    for topic in topics:
        for part in topic.partitions:
            if _is_asked(part):
                leaders.setdefault(part.leader, set()).add(topic.name)
    if not leaders:
        return list(topics)
    answers = await asyncio.gather(*(_ask(cluster, leader, sorted(leaders[leader])) for leader in sorted(leaders)))
    answers_by_leader = dict(zip(sorted(leaders), answers, strict=True))
    return [
        replace(topic, partitions=tuple(_completed(topic.name, part, answers_by_leader) for part in topic.partitions))
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


def _completed(
    topic: str, part: PartitionDescription, answers_by_leader: Mapping[int, Parts | KafkaError]
) -> PartitionDescription:
    if not _is_asked(part):
        return part
    answer = answers_by_leader[part.leader]
    if isinstance(answer, KafkaError):
        return replace(part, error=answer)
    found = answer.get((topic, part.partition))
    if found is None or (found.error is None and found.log_end_offset == UNKNOWN):
        return replace(part, error=NotLeaderOrFollower(f"{topic}-{part.partition} is led by another broker by now"))
    return found
