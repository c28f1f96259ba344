"""What groups have committed (org.apache.kafka.coordinator.group.OffsetMetadataManager).

- A member of a group commits with its generation; a simple consumer, without one, only while the group has no members.
  Its group comes into being with its first commit.
- A partition that does not exist, or metadata longer than offset.metadata.max.bytes, is refused on its own account;
  what else is in the request is committed.
- An offset goes with its topic, with its group, by request, or after offsets.retention.minutes (KIP-211):

      group                                        counted from
      never had members                            the commit
      Empty                                        when it became empty
      Stable, of consumers, topic not subscribed   the commit
      anything else                                never

  A commit that says itself how long it is to be kept (OffsetCommit up to version 4) is kept so long from the commit on.

An empty group id is good here: old simple consumers use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sparklog.base.config import BrokerConfig
from sparklog.base.config_keys import MINUTE_MS
from sparklog.base.errors import (
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    KafkaError,
    OffsetMetadataTooLarge,
    UnknownTopicOrPartition,
)
from sparklog.base.ids import TopicPartition
from sparklog.group.group import Group, TopicsView, Work
from sparklog.group.records import NO_TIMESTAMP, CoordinatorRecord, OffsetKey, OffsetValue
from sparklog.group.requests import (
    CommittedOffset,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
)
from sparklog.log.coordinator_records import ZERO_ID

Committed = Mapping[TopicPartition, OffsetValue]


@dataclass(slots=True, eq=False)
class Offsets:
    """The committed offsets of the groups of one shard."""

    config: BrokerConfig
    topics: TopicsView
    _groups: dict[str, dict[TopicPartition, OffsetValue]] = field(default_factory=dict)

    def of(self, group_id: str) -> Committed:
        return self._groups.get(group_id, {})

    def commit(self, request: OffsetCommit, group: Group | None, now_ms: int, work: Work) -> OffsetCommitResponse:
        """Raises the KafkaError with which the whole commit is refused."""
        if group is not None:
            group.check_commit(request)
        elif request.generation_or_epoch >= 0:
            kind = GroupIdNotFound if request.tells_missing_groups else IllegalGeneration
            raise kind(f"there is no group {request.group_id!r}")
        errors: dict[TopicPartition, KafkaError | None] = {}
        for asked in request.offsets:
            errors[asked.partition] = self._check(asked)
            if errors[asked.partition] is None:
                work.records.append(self._record(request, asked, now_ms))
        return OffsetCommitResponse(errors=errors)

    def _check(self, asked: OffsetToCommit) -> KafkaError | None:
        if not self._exists(asked.partition):
            return UnknownTopicOrPartition(f"there is no partition {asked.partition}")
        if len(asked.metadata) > self.config.offset_metadata_max_bytes:
            return OffsetMetadataTooLarge(
                f"metadata of {len(asked.metadata)} characters: at most {self.config.offset_metadata_max_bytes}"
            )
        return None

    def _exists(self, partition: TopicPartition) -> bool:
        topic = self.topics.find(partition.topic)
        return topic is not None and 0 <= partition.partition < len(topic.partitions)

    def _record(self, request: OffsetCommit, asked: OffsetToCommit, now_ms: int) -> CoordinatorRecord:
        topic = self.topics.find(asked.partition.topic)
        committed_ms = now_ms if asked.commit_timestamp_ms is None else asked.commit_timestamp_ms
        value = OffsetValue(
            offset=asked.offset,
            leader_epoch=asked.leader_epoch,
            metadata=asked.metadata,
            commit_timestamp_ms=committed_ms,
            expire_timestamp_ms=NO_TIMESTAMP if request.retention_ms is None else committed_ms + request.retention_ms,
            topic_id=topic.topic_id if topic else ZERO_ID,
        )
        return CoordinatorRecord(_key(request.group_id, asked.partition), value)

    def fetch(self, request: OffsetFetch) -> OffsetFetchResponse:
        """-1 for a partition that nothing is committed for."""
        found = self.of(request.group_id)
        asked = found if request.partitions is None else request.partitions
        return OffsetFetchResponse(offsets=[_committed(partition, found.get(partition)) for partition in asked])

    def delete(self, request: OffsetDelete, group: Group, work: Work) -> OffsetDeleteResponse:
        errors: dict[TopicPartition, KafkaError | None] = {}
        for partition in request.partitions:
            errors[partition] = None
            if not self._exists(partition):
                errors[partition] = UnknownTopicOrPartition(f"there is no partition {partition}")
            elif group.is_subscribed_to(partition.topic):
                errors[partition] = GroupSubscribedToTopic(
                    f"group {group.group_id!r} is subscribed to {partition.topic!r}"
                )
            elif partition in self.of(request.group_id):
                work.records.append(CoordinatorRecord(_key(request.group_id, partition)))
        return OffsetDeleteResponse(errors=errors)

    def delete_all(self, group_id: str, work: Work) -> None:
        """All that a group has committed, because the group goes."""
        work.records += [CoordinatorRecord(_key(group_id, partition)) for partition in self.of(group_id)]

    def delete_topics(self, names: frozenset[str], work: Work) -> None:
        """What any group has committed for topics that are no more."""
        for group_id, committed in self._groups.items():
            work.records += [
                CoordinatorRecord(_key(group_id, partition)) for partition in committed if partition.topic in names
            ]

    def expire(self, group: Group, now_ms: int, work: Work) -> bool:
        """Whether nothing is left that the group has committed, once the records are written."""
        committed = self.of(group.group_id)
        expired = [
            partition for partition, value in committed.items() if self._has_expired(group, partition, value, now_ms)
        ]
        work.records += [CoordinatorRecord(_key(group.group_id, partition)) for partition in expired]
        return len(expired) == len(committed)

    def _has_expired(self, group: Group, partition: TopicPartition, value: OffsetValue, now_ms: int) -> bool:
        if group.is_subscribed_to(partition.topic):
            return False
        since_ms = group.offset_unused_since(value)
        if since_ms is None:
            return False
        if value.expire_timestamp_ms != NO_TIMESTAMP:
            return now_ms >= value.expire_timestamp_ms
        return now_ms - since_ms >= self.config.offsets_retention_minutes * MINUTE_MS

    def replay(self, key: OffsetKey, value: OffsetValue | None) -> None:
        partition = TopicPartition(key.topic, key.partition)
        if value is not None:
            self._groups.setdefault(key.group_id, {})[partition] = value
            return
        committed = self._groups.get(key.group_id, {})
        committed.pop(partition, None)
        if not committed:
            self._groups.pop(key.group_id, None)


def _key(group_id: str, partition: TopicPartition) -> OffsetKey:
    return OffsetKey(group_id=group_id, topic=partition.topic, partition=partition.partition)


def _committed(partition: TopicPartition, value: OffsetValue | None) -> CommittedOffset:
    if value is None:
        return CommittedOffset(partition=partition)
    return CommittedOffset(
        partition=partition,
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp_ms=value.commit_timestamp_ms,
    )
