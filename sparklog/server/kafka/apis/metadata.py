"""Metadata in Kafka's protocol. Brokers have the address of the listener that received the request."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import chain, islice
from typing import Any

from sparklog.base.acls import CLUSTER_NAME, AclResourceType
from sparklog.base.errors import InvalidRequest, KafkaError
from sparklog.broker.apis import metadata
from sparklog.broker.apis.metadata import MetadataRequest, PartitionMetadata, TopicMetadata, TopicQuery
from sparklog.server.kafka.array_counts import MAX_ELEMENTS
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.responses import (
    broker_address,
    with_listener,
)
from sparklog.server.kafka.translation import PARTITIONS, KafkaCall, Translation
from sparklog.server.kafka.wide_requests import join

FIRST_WITH_NONE_FOR_ALL = 1
FIRST_WITH_TOPIC_IDS = 12


async def serve(call: KafkaCall, request: Message) -> Message:
    """Describe topics in parts, so that topics with many partitions do not block other requests."""
    is_all = request.topics is None or (call.version < FIRST_WITH_NONE_FOR_ALL and not request.topics)
    create = not is_all and getattr(request, "allow_auto_topic_creation", True)
    if is_all:
        queries = None
    elif len(request.topics) <= metadata.PART:
        queries = _queries(call.version, request)
    else:
        queries = await asyncio.to_thread(_queries, call.version, request)
    wanted = MetadataRequest(topics=queries, allow_auto_topic_creation=create)
    parts = await call.broker.handlers[metadata.SPLIT](wanted)
    first = list(islice(parts, 2))
    serve_part = partial(_serve_part, call, request)
    if len(first) == 1:
        return await serve_part(first[0])
    answers = await call.broker.slices.each(chain(first, parts), serve_part)
    return await asyncio.to_thread(join, answers, PARTITIONS.response_arrays)


async def _serve_part(call: KafkaCall, request: Message, wanted: MetadataRequest) -> Message:
    response = await call.serve(metadata.API, wanted)
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
        topics=[_topic(call, topic, ask_operations=ask_topic) for topic in response.topics],
        cluster_authorized_operations=call.operations(AclResourceType.CLUSTER, CLUSTER_NAME, is_asked=ask_cluster),
        error_code=None,
    )


def _queries(version: int, request: Message) -> list[TopicQuery]:
    """Return the requested topics, each once, as in Kafka. Raises InvalidRequest if the version has no ids."""
    queries = [TopicQuery(name=topic.name, topic_id=getattr(topic, "topic_id", None)) for topic in request.topics]
    if version < FIRST_WITH_TOPIC_IDS and any(query.name is None or query.topic_id for query in queries):
        raise InvalidRequest(f"version {version} of Metadata finds topics by their names only")
    return list(dict.fromkeys(TopicQuery(topic_id=query.topic_id) if query.topic_id else query for query in queries))


def _topic(call: KafkaCall, topic: TopicMetadata, *, ask_operations: bool) -> dict[str, Any]:
    is_asked = ask_operations and topic.error is None
    return {
        "error_code": topic.error,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "topic_authorized_operations": call.operations(AclResourceType.TOPIC, topic.name or "", is_asked=is_asked),
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
    """Return the answer with the error in each topic and without brokers."""
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
