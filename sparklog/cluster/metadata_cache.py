"""The topics as this broker knows them now, for every request to look up without asking the store.

Topics are values: a change replaces one, so a handler that holds a topic sees it unchanged to the end.
Read and changed on the event loop only.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from sparklog.base.errors import UnknownTopicId, UnknownTopicOrPartition
from sparklog.base.ids import TopicPartition, encode_id
from sparklog.cluster.model import Topic


class MetadataCache:
    """Topics by name and by id."""

    def __init__(self) -> None:
        self._topics: dict[str, Topic] = {}
        self._names: dict[UUID, str] = {}
        self.version = 0
        """Rises with every change: who has seen a version need not look again."""

    def __iter__(self) -> Iterator[Topic]:
        """All topics, by name in their order."""
        return iter([self._topics[name] for name in sorted(self._topics)])

    def __contains__(self, name: str) -> bool:
        return name in self._topics

    def find(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def has(self, partition: TopicPartition) -> bool:
        topic = self._topics.get(partition.topic)
        return topic is not None and 0 <= partition.partition < len(topic.partitions)

    def get(self, name: str) -> Topic:
        """Raises UnknownTopicOrPartition."""
        topic = self._topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"topic {name!r} does not exist")
        return topic

    def find_name(self, topic_id: UUID) -> str | None:
        return self._names.get(topic_id)

    def find_by_id(self, topic_id: UUID | None) -> Topic | None:
        return self._topics.get(self._names.get(topic_id, "")) if topic_id else None

    def get_by_id(self, topic_id: UUID) -> Topic:
        """Raises UnknownTopicId."""
        topic = self.find_by_id(topic_id)
        if topic is None:
            raise UnknownTopicId(f"there is no topic with the id {encode_id(topic_id)}")
        return topic

    def put(self, topic: Topic) -> None:
        self.remove(topic.name)
        self._topics[topic.name] = topic
        self._names[topic.topic_id] = topic.name
        self.version += 1

    def remove(self, name: str) -> None:
        if topic := self._topics.pop(name, None):
            del self._names[topic.topic_id]
            self.version += 1
