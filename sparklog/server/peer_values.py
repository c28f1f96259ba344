"""What the messages of the service `Replication` have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from google.protobuf.message import DecodeError

from sparklog.base.errors import InvalidRequest, KafkaError, error_for
from sparklog.base.ids import TopicPartition
from sparklog.server.grpc_errors import error_message
from sparklog.v1 import replication_pb2 as pb


def serialize(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def parse(message_class: Any, data: bytes) -> Any:
    """The message, however large: brokers trust one another. Raises InvalidRequest where it is none."""
    try:
        return message_class.FromString(data)
    except DecodeError as error:
        raise InvalidRequest(str(error)) from None


def read_topic_id(data: bytes) -> UUID:
    if len(data) != 16:
        raise InvalidRequest(f"a topic id has 16 bytes, not {len(data)}")
    return UUID(bytes=data)


def texts_by(configs: Mapping[Any, Mapping[str, str]]) -> dict[Any, pb.TopicOverrides]:
    return {key: pb.TopicOverrides(configs=dict(texts)) for key, texts in configs.items()}


def outcomes_of(errors: Mapping[TopicPartition, KafkaError]) -> list[pb.PartitionOutcome]:
    return [
        pb.PartitionOutcome(topic=name.topic, partition=name.partition, error=error_message(error))
        for name, error in errors.items()
    ]


def errors_of(outcomes: Iterable[Any]) -> dict[TopicPartition, KafkaError]:
    return {
        TopicPartition(outcome.topic, outcome.partition): error
        for outcome in outcomes
        if (error := read_error(outcome)) is not None
    }


def read_error(message: Any) -> KafkaError | None:
    return error_for(message.error.code, message.error.message) if message.HasField("error") else None
