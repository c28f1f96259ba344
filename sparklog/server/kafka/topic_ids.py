"""Topics of group requests in Kafka's protocol: by name in older versions, by id in newer ones (KIP-848).

The broker uses names internally. Partitions of an id that no topic has are handled separately: UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from sparklog.base.ids import TopicPartition
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.responses import by_topic


class TopicIds:
    """Mapping between topic names and ids, from the current metadata."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    def name_of(self, topic: Message) -> str | None:
        """Return the topic name of a structure that has `name` or `topic_id`; None if no topic has the id."""
        if (name := getattr(topic, "name", None)) is not None:
            return str(name)
        found = self._metadata.find_by_id(topic.topic_id)
        return found.name if found else None

    def id_of(self, name: str) -> UUID | None:
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
