"""What every group is to the rest of the coordinator, whichever protocol its members speak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from typing import Protocol
from uuid import UUID

from sparklog.group.records import CoordinatorRecord, OffsetValue
from sparklog.group.requests import OffsetCommit, OffsetFetch
from sparklog.runtime.state_machine import Draft

CLASSIC = "classic"
CONSUMER = "consumer"
Work = Draft[CoordinatorRecord]
"""What is to be done about a group, in the making."""


class Group(Protocol):
    """A classic group (`classic_group.py`) or a group of the new protocol (`consumer_group.py`)."""

    group_id: str

    @property
    def group_type(self) -> str:
        """CLASSIC or CONSUMER."""
        ...

    @property
    def state_name(self) -> str:
        """As Kafka prints it."""
        ...

    @property
    def protocol_type(self) -> str | None:
        """`consumer` where the members are consumers; None where it has never had any."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        ...

    def check_commit(self, request: OffsetCommit) -> None:
        """Raises the KafkaError with which the whole commit is refused."""
        ...

    def check_fetch(self, request: OffsetFetch) -> None:
        """Raises the KafkaError with which the fetch of offsets is refused."""
        ...

    def check_delete(self) -> None:
        """Raises NonEmptyGroup, or GroupIdNotFound where it is dead already."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether offsets of the topic are in use, and must not be deleted."""
        ...

    def offset_unused_since(self, offset: OffsetValue) -> int | None:
        """From when on the retention of an offset counts, in ms; None: it does not expire as things are."""
        ...

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        """What is written when the group is deleted: a tombstone for each of its own records, not for its offsets."""
        ...


class TopicView(Protocol):
    """A topic, as far as groups are concerned: cluster.model.Topic is one."""

    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> UUID: ...

    @property
    def partitions(self) -> Sized: ...


class TopicsView(Protocol):
    """The topics of the cluster: cluster.metadata_cache.MetadataCache is one."""

    version: int
    """Another one after every change."""

    def __iter__(self) -> Iterator[TopicView]: ...

    def __contains__(self, name: str) -> bool: ...

    def find(self, name: str) -> TopicView | None: ...

    def get_by_id(self, topic_id: UUID) -> TopicView:
        """Raises UnknownTopicId."""
        ...
