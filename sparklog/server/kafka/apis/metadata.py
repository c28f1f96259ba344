"""Metadata in Kafka's protocol. Brokers have the address of the listener that received the request."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from sparklog.base.errors import InvalidRequest, KafkaError, UnknownTopicOrPartition
from sparklog.broker.apis import metadata
from sparklog.broker.apis.metadata import MetadataRequest, PartitionMetadata, TopicMetadata, TopicQuery
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.runtime.slices import in_parts, of_many
from sparklog.server.kafka.array_counts import MAX_ELEMENTS
from sparklog.server.kafka.messages import Message, write
from sparklog.server.kafka.responses import (
    CLUSTER_OPERATIONS,
    OPERATIONS_NOT_ASKED,
    TOPIC_OPERATIONS,
    broker_address,
    with_listener,
)
from sparklog.server.kafka.translation import PARTITIONS, KafkaCall, Translation
from sparklog.server.kafka.wide_requests import join

FIRST_WITH_NONE_FOR_ALL = 1
FIRST_WITH_TOPIC_IDS = 12
PART = 200
"""Number of partitions described in one go: a few milliseconds of work."""


async def serve(call: KafkaCall, request: Message) -> Message | tuple[bytes]:
    """Describe topics a part at a time, so that topics with many partitions do not block other requests."""
    is_all = request.topics is None or (call.version < FIRST_WITH_NONE_FOR_ALL and not request.topics)
    create = not is_all and getattr(request, "allow_auto_topic_creation", True)
    if is_all:
        queries = [TopicQuery(name=topic.name) for topic in call.broker.metadata]
    elif len(request.topics) <= PART:
        queries = _queries(call.version, request)
    else:
        queries = await asyncio.to_thread(_queries, call.version, request)
    serve_part = partial(_serve_part, call, request, create)
    if len(queries) <= PART and len(parts := list(_parts(call.broker.metadata, queries))) == 1:
        return await serve_part(parts[0])
    answers = await call.broker.slices.each(_parts(call.broker.metadata, queries), serve_part)
    if is_all:
        answers = [_without_gone(answer) for answer in answers]
    return (await asyncio.to_thread(lambda: write(join(answers, PARTITIONS.tells))),)


def _parts(metadata: MetadataCache, queries: Sequence[TopicQuery]) -> Iterator[list[TopicQuery]]:
    """Split the topics into at least one part, of at most `PART` partitions. A larger topic is split, too."""

    def count(query: TopicQuery) -> int:
        topic = metadata.find(query.name) if query.name else metadata.find_by_id(query.topic_id)
        return len(topic.partitions) if topic else 1

    def weigh(query: TopicQuery) -> int:
        return min(PART, count(query))

    for some in of_many(queries, PART) if queries else [()]:
        pieces = [piece for query in some for piece in _pieces(query, count(query))]
        yield from in_parts(pieces, weigh, PART)


def _pieces(query: TopicQuery, partitions: int) -> Sequence[TopicQuery]:
    if partitions <= PART:
        return (query,)
    return [dataclasses.replace(query, first=first, count=PART) for first in range(0, partitions, PART)]


async def _serve_part(call: KafkaCall, request: Message, create: bool, queries: Sequence[TopicQuery]) -> Message:
    wanted = MetadataRequest(topics=queries, allow_auto_topic_creation=create)
    response = await call.broker.serve(metadata.API, wanted)
    ask_topic = getattr(request, "include_topic_authorized_operations", False)
    ask_cluster = getattr(request, "include_cluster_authorized_operations", False)
    return call.answer(
        throttle_time=0,
        brokers=[
            {
                "node_id": broker.broker_id,
                **broker_address(broker, call.session.listener),
                "rack": broker.rack or None,
            }
            for broker in with_listener(response.brokers, call.session.listener)
        ],
        cluster_id=response.cluster_id,
        controller_id=response.controller_id,
        topics=[_topic(topic, ask_operations=ask_topic) for topic in response.topics],
        cluster_authorized_operations=CLUSTER_OPERATIONS if ask_cluster else OPERATIONS_NOT_ASKED,
        error_code=None,
    )


def _without_gone(answer: Message) -> Message:
    """Drop topics that were deleted before they were described. Used if the request is for all topics."""
    gone = UnknownTopicOrPartition.code
    return dataclasses.replace(answer, topics=tuple(topic for topic in answer.topics if topic.error_code != gone))


def _queries(version: int, request: Message) -> list[TopicQuery]:
    """Return the requested topics, each once, as in Kafka. Raises InvalidRequest if the version has no ids."""
    queries = [TopicQuery(name=topic.name, topic_id=getattr(topic, "topic_id", None)) for topic in request.topics]
    if version < FIRST_WITH_TOPIC_IDS and any(query.name is None or query.topic_id for query in queries):
        raise InvalidRequest(f"version {version} of Metadata finds topics by their names only")
    return list(dict.fromkeys(TopicQuery(topic_id=query.topic_id) if query.topic_id else query for query in queries))


def _topic(topic: TopicMetadata, *, ask_operations: bool) -> dict[str, Any]:
    return {
        "error_code": topic.error,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "topic_authorized_operations": TOPIC_OPERATIONS if ask_operations else OPERATIONS_NOT_ASKED,
        "partitions": [partition_fields(part) for part in topic.partitions],
    }


def partition_fields(part: PartitionMetadata) -> dict[str, Any]:
    """Return the fields of a partition, shared with DescribeTopicPartitions."""
    return {
        "error_code": part.error,
        "partition_index": part.partition,
        "leader_id": part.leader,
        "leader_epoch": part.leader_epoch,
        "replica_nodes": tuple(part.replicas),
        "isr_nodes": tuple(part.in_sync_replicas),
        "offline_replicas": tuple(part.offline_replicas),
    }


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    """Return the answer to a request that was refused as a whole: every topic has the error, and brokers are empty."""
    return call.answer(
        throttle_time=0,
        brokers=(),
        topics=[
            {
                "error_code": error,
                "name": topic.name or "",
                "topic_id": getattr(topic, "topic_id", None),
                "partitions": (),
            }
            for topic in request.topics or ()
        ],
        error_code=error,
    )


TRANSLATION = Translation(api=metadata.API, serve=serve, refuse=refuse, max_elements=MAX_ELEMENTS)
