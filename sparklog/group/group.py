"""The interface of a group to the rest of the coordinator, for both group protocols."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from typing import Protocol
from uuid import UUID

from sparklog.group.requests import OffsetCommit, OffsetFetch
from sparklog.offsets_topic.records import CoordinatorRecord, OffsetValue
from sparklog.runtime.state_machine import DecisionBuilder

CLASSIC = "classic"
CONSUMER = "consumer"
MOST_METADATA = 16
"""Limit of the metadata or subscriptions of a group's members, as a multiple of message.max.bytes."""
Work = DecisionBuilder[CoordinatorRecord]
"""An unfinished decision about a group."""


class Group(Protocol):
    """A classic group (`classic_group.py`) or a consumer group (`consumer_group.py`)."""

    group_id: str

    @property
    def group_type(self) -> str:
        """CLASSIC or CONSUMER."""
        ...

    @property
    def state_name(self) -> str:
        """Name of the state, as Kafka prints it."""
        ...

    @property
    def protocol_type(self) -> str | None:
        """`consumer` if the members are consumers; None if the group has never had members."""
        ...

    @property
    def members(self) -> Sized:
        """The members; only their number matters here."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        ...

    def check_commit(self, request: OffsetCommit) -> None:
        """Raise a KafkaError if the group refuses the whole commit."""
        ...

    def check_fetch(self, request: OffsetFetch) -> None:
        """Raise a KafkaError if the group refuses the fetch of offsets."""
        ...

    def check_delete(self) -> None:
        """Raise NonEmptyGroup if the group has members, or GroupIdNotFound if it is dead."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member is subscribed to the topic: its offsets must not be deleted."""
        ...

    def offset_unused_since(self, offset: OffsetValue) -> int | None:
        """Return the time in ms at which an offset's retention starts; None if the offset cannot expire now."""
        ...

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        """Return the tombstones of the group's own records, without its offsets."""
        ...


class TopicImage(Protocol):
    """The part of a topic that groups use; implemented by cluster.model.Topic."""

    @property
    def name(self) -> str:
        """The topic's name."""
        ...

    @property
    def topic_id(self) -> UUID:
        """The topic's id; a new topic of the same name has another."""
        ...

    @property
    def partitions(self) -> Sized:
        """The partitions; only their number matters here."""
        ...


class TopicsImage(Protocol):
    """The topics of the cluster; implemented by cluster.metadata_cache.MetadataCache."""

    version: int
    """Differs after every change."""

    def __iter__(self) -> Iterator[TopicImage]: ...

    def __contains__(self, name: str) -> bool: ...

    def find(self, name: str) -> TopicImage | None:
        """Return the topic; None if there is none."""
        ...

    def get_by_id(self, topic_id: UUID) -> TopicImage:
        """Return the topic with this id. Raises UnknownTopicId."""
        ...
