"""Topics of requests in Kafka's protocol: by name in older versions, by id in newer ones (KIP-848).

The broker uses names internally. Partitions of an unknown id get UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from sparklog.base.ids import TopicPartition
from sparklog.broker.node import Broker
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.responses import by_topic


class TopicIds:
    """Mapping between topic names and ids: the only access of a listener to the broker's metadata."""

    def __init__(self, broker: Broker) -> None:
        self._metadata = broker.metadata

    def name_of(self, topic: Message) -> str | None:
        """Return the topic name of a structure that has `name` or `topic_id`; None if no topic has the id."""
        if (name := getattr(topic, "name", None)) is not None:
            return str(name)
        found = self._metadata.find_by_id(topic.topic_id)
        return found.name if found else None

    def find_name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with that id; None if there is none."""
        return self._metadata.find_name(topic_id)

    def get_name(self, topic_id: UUID) -> str:
        """Return the name of the topic with that id. Raises UnknownTopicId."""
        return self._metadata.get_by_id(topic_id).name

    def id_of(self, name: str) -> UUID | None:
        """Return the topic's id; None for a topic that this broker does not know."""
        found = self._metadata.find(name)
        return found.topic_id if found else None

    def partitions(self, topics: Iterable[Message]) -> list[TopicPartition]:
        """Return the partitions of structures with `topic_id` and `partitions`, without those of deleted topics."""
        return [
            TopicPartition(name, number)
            for topic in topics
            if (name := self.name_of(topic)) is not None
            for number in topic.partitions
        ]

    def fields(self, partitions: Sequence[TopicPartition]) -> list[dict[str, Any]]:
        """Return structures with `topic_id` and `partitions`, without deleted topics."""
        return [
            {"topic_id": topic_id, "partitions": numbers}
            for name, numbers in by_topic(partitions).items()
            if (topic_id := self.id_of(name)) is not None
        ]

    def named_fields(self, partitions: Sequence[TopicPartition]) -> list[dict[str, Any]]:
        """Return the same structures as `fields`, with `topic_name` too."""
        return [
            {"topic_id": topic_id, "topic_name": name, "partitions": numbers}
            for name, numbers in by_topic(partitions).items()
            if (topic_id := self.id_of(name)) is not None
        ]
