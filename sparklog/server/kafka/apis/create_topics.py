"""CreateTopics in Kafka's protocol. -1 means the broker's default."""

from __future__ import annotations

from typing import Any

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import create_topics
from sparklog.broker.apis.create_topics import CreateTopicsRequest, NewTopic, TopicCreationResult
from sparklog.broker.config_entries import ConfigEntry
from sparklog.server.kafka.configs import SOURCES
from sparklog.server.kafka.messages import Message, whole_ms
from sparklog.server.kafka.responses import message_of
from sparklog.server.kafka.translation import KafkaCall, Translation, WideArrays

DEFAULT = -1
FIRST_WITH_QUOTA_ERROR = 6


async def serve(call: KafkaCall, request: Message) -> Message:
    """Return each topic's id, numbers and configuration, or its error."""
    wanted = CreateTopicsRequest(
        topics=[_new_topic(topic) for topic in request.topics],
        validate_only=request.validate_only,
        timeout_ms=whole_ms(request.timeout),
        mutate=call.mutation_quota(strict_from=FIRST_WITH_QUOTA_ERROR),
    )
    response = await call.serve(create_topics.API, wanted)
    return call.answer(topics=[_result(topic) for topic in response.topics])


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    """Return the answer with the error in each topic."""
    return call.answer(topics=[_result(TopicCreationResult(name=topic.name, error=error)) for topic in request.topics])


def _new_topic(topic: Message) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partitions=None if topic.num_partitions == DEFAULT else topic.num_partitions,
        replication_factor=None if topic.replication_factor == DEFAULT else topic.replication_factor,
        assignments=[(part.partition_index, part.broker_ids) for part in topic.assignments],
        configs={config.name: config.value for config in topic.configs},
    )


def _result(topic: TopicCreationResult) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "error_code": topic.error,
        "error_message": message_of(topic.error),
        "num_partitions": topic.partitions or -1,
        "replication_factor": topic.replication_factor or -1,
        "configs": None if topic.configs_error else [_config(entry) for entry in topic.configs],
        "topic_config_error_code": topic.configs_error.code if topic.configs_error else 0,
    }


def _config(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "read_only": entry.is_read_only,
        "config_source": SOURCES[entry.source],
        "is_sensitive": entry.is_sensitive,
    }


TRANSLATION = Translation(
    api=create_topics.API, serve=serve, refuse=refuse, wide=WideArrays(("topics",), ("topics",), part=10)
)
