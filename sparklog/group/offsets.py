"""The committed offsets of groups (org.apache.kafka.coordinator.group.OffsetMetadataManager).

- A member of a group commits with its generation. A simple consumer commits without one, and only while the group has
  no members; its first commit creates the group.
- A partition that does not exist, or metadata longer than offset.metadata.max.bytes, is refused for that partition
  alone; the other partitions of the request are committed.
- An offset is deleted with its topic, with its group, by request, or after offsets.retention.minutes (KIP-211):

      group                                        counted from
      never had members                            the commit
      Empty                                        when it became empty
      Stable, of consumers, topic not subscribed   the commit
      anything else                                never

  A commit with a retention time of its own (OffsetCommit up to version 4) is kept for that time from the commit.

- A commit belongs to a topic id. If the topic was deleted and another one has its name now, the commit is not returned,
  and is deleted with the expired offsets.
- A fetch returns only offsets that are committed in the log: each uncommitted change is kept with the value before it.
- An offset that is committed in a transaction is pending until the transaction's marker is in the log
  (`pending_offsets.py`). It takes effect then, unless a later commit has been replayed already. While it is pending,
  the partition's offset does not expire and the group stays. A tombstone drops it: a pending offset is deleted with its
  topic, with its group, or by request.
- A fetch with `require_stable` gets UNSTABLE_OFFSET_COMMIT for an offset that records in the log may still change.
  Apache Kafka lets such a fetch wait until the log is committed; here, uncommitted changes get this error too.

An empty group id is valid here: old simple consumers use it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct, field

from sparklog.base.config import BrokerConfig
from sparklog.base.config_keys import MINUTE_MS
from sparklog.base.errors import (
    CoordinatorNotAvailable,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InconsistentTopicId,
    KafkaError,
    OffsetMetadataTooLarge,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from sparklog.base.ids import TopicPartition
from sparklog.base.schemas import ZERO_ID
from sparklog.group.group import Group, TopicsImage, Work
from sparklog.group.pending_offsets import PendingOffsets, size_of
from sparklog.group.requests import (
    CommittedOffset,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
    TxnOffsetCommit,
)
from sparklog.offsets_topic.records import NO_TIMESTAMP, CoordinatorRecord, OffsetKey, OffsetValue

MOST_REMOVED = 200
"""Maximum number of a group's offsets that a decision removes: with their group or topic, or because they expired."""
MOST_PENDING_BYTES = 16 << 20
"""Approximate limit of memory for the pending offsets of a shard: some 28,000 offsets. A marker that ends a transaction
with all of them takes 0.1 s."""
OffsetsByPartition = Mapping[TopicPartition, OffsetValue]


class _UncommittedChange(NamedTuple):
    """An appended and replayed record that is not yet known to be committed."""

    log_offset: int
    group_id: str
    partition: TopicPartition
    before: OffsetValue | None


class CommittedOffsets(Struct, eq=False):
    """The committed offsets of the groups of one shard."""

    config: BrokerConfig
    topics: TopicsImage
    pending: PendingOffsets = field(default_factory=PendingOffsets)
    _groups: dict[str, dict[TopicPartition, OffsetValue]] = field(default_factory=dict)
    _uncommitted: deque[_UncommittedChange] = field(default_factory=deque)

    def of(self, group_id: str) -> OffsetsByPartition:
        """Return a group's offsets by partition, including those that are not committed in the log yet."""
        return self._groups.get(group_id, {})

    def commit(self, request: OffsetCommit, group: Group | None, now_ms: int, work: Work) -> OffsetCommitResponse:
        """Write the valid offsets, and return an error, or None, for each. group: None if there is none

        Raises KafkaError if the whole commit is refused.
        """
        if group is not None:
            group.check_commit(request)
        elif request.generation_or_epoch >= 0:
            kind = GroupIdNotFound if request.tells_missing_groups else IllegalGeneration
            raise kind(f"there is no group {request.group_id!r}")
        if isinstance(request, TxnOffsetCommit):
            self._check_room(request)
        errors: dict[TopicPartition, KafkaError | None] = {}
        for asked in request.offsets:
            errors[asked.partition] = self._check(asked)
            if errors[asked.partition] is None:
                work.write(self._record(request, asked, now_ms))
        return OffsetCommitResponse(errors=errors)

    def _check_room(self, request: TxnOffsetCommit) -> None:
        more = sum(size_of(asked.metadata) for asked in request.offsets)
        if self.pending.size_bytes + more > MOST_PENDING_BYTES:
            raise CoordinatorNotAvailable("there are too many offsets of transactions that have not ended")

    def _check(self, asked: OffsetToCommit) -> KafkaError | None:
        topic = self.topics.find(asked.partition.topic)
        if topic is None or not self._exists(asked.partition):
            return UnknownTopicOrPartition(f"there is no partition {asked.partition}")
        if asked.topic_id not in (None, topic.topic_id):
            return InconsistentTopicId(f"topic {asked.partition.topic!r} has another id by now")
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
        """Return the committed offsets; -1 for a partition that has none."""
        found = {
            partition: value
            for partition, value in self.committed_of(request.group_id).items()
            if not self._is_of_another(partition, value)
        }
        unstable = self._unstable_of(request.group_id) if request.require_stable else {}
        asked = {**found, **unstable} if request.partitions is None else request.partitions
        return OffsetFetchResponse(
            offsets=[
                _unstable(partition) if partition in unstable else _committed(partition, found.get(partition))
                for partition in asked
            ]
        )

    def _unstable_of(self, group_id: str) -> Mapping[TopicPartition, None]:
        """Return the partitions whose offset records in the log may still change."""
        pending = (
            partition
            for partition, waiting in self.pending.of(group_id).items()
            if not all(self._is_of_another(partition, value) for value in waiting.values())
        )
        uncommitted = (change.partition for change in self._uncommitted if change.group_id == group_id)
        return dict.fromkeys(chain(pending, uncommitted))

    def settle(self, is_committed: Callable[[int], bool]) -> None:
        """Drop the uncommitted changes that are committed by now. is_committed: takes an offset in the log"""
        while self._uncommitted and is_committed(self._uncommitted[0].log_offset):
            self._uncommitted.popleft()

    def committed_of(self, group_id: str) -> OffsetsByPartition:
        """Return a copy of the group's offsets without the changes that are not committed yet."""
        found = dict(self.of(group_id))
        for change in reversed(self._uncommitted):
            if change.group_id == group_id:
                if change.before is None:
                    found.pop(change.partition, None)
                else:
                    found[change.partition] = change.before
        return found

    def _is_of_another(self, partition: TopicPartition, value: OffsetValue) -> bool:
        """Return whether the offset was committed for an earlier topic of the same name."""
        topic = self.topics.find(partition.topic)
        return topic is not None and value.topic_id not in (ZERO_ID, topic.topic_id)

    def delete(self, request: OffsetDelete, group: Group, work: Work) -> OffsetDeleteResponse:
        """Delete offsets of partitions that no member is subscribed to, and return an error, or None, for each.

        A partition without an offset is no error.
        """
        errors: dict[TopicPartition, KafkaError | None] = {}
        for partition in request.partitions:
            errors[partition] = None
            if not self._exists(partition):
                errors[partition] = UnknownTopicOrPartition(f"there is no partition {partition}")
            elif group.is_subscribed_to(partition.topic):
                errors[partition] = GroupSubscribedToTopic(
                    f"group {group.group_id!r} is subscribed to {partition.topic!r}"
                )
            elif partition in self.of(request.group_id) or partition in self.pending.of(request.group_id):
                work.write(CoordinatorRecord(_key(request.group_id, partition)))
        return OffsetDeleteResponse(errors=errors)

    def delete_some(self, group_id: str, work: Work) -> bool:
        """Delete up to MOST_REMOVED offsets of a group that is being deleted; return whether it has none left."""
        pending, committed = self.pending.of(group_id), self.of(group_id)
        count = len(committed) + sum(partition not in committed for partition in pending)
        self._delete_where(lambda *_: True, [group_id], work)
        return count <= MOST_REMOVED

    def delete_topics(self, ids: Mapping[str, UUID], group_ids: Iterable[str], work: Work) -> None:
        """Delete up to MOST_REMOVED offsets of each group for deleted topics. ids: the deleted topics' ids by name"""

        def is_gone(partition: TopicPartition, value: OffsetValue) -> bool:
            if value.topic_id == ZERO_ID:  # without an id, as from Kafka's brokers: written for the deleted topic
                return partition.topic in ids
            return value.topic_id == ids.get(partition.topic)

        self._delete_where(is_gone, group_ids, work)

    def delete_of_others(self, group_ids: Iterable[str], work: Work) -> None:
        """Delete up to MOST_REMOVED offsets of each group that were committed for earlier topics of the same names."""
        self._delete_where(self._is_of_another, group_ids, work)

    def _delete_where(
        self,
        is_gone: Callable[[TopicPartition, OffsetValue], bool],
        group_ids: Iterable[str],
        work: Work,
    ) -> None:
        """Delete the offsets whose values, committed and pending, are all gone: they share one key."""
        for group_id in group_ids:
            pending, committed = self.pending.of(group_id), self.of(group_id)
            partitions = chain(committed, (partition for partition in pending if partition not in committed))
            gone = (each for each in partitions if all(is_gone(each, value) for value in self._values(group_id, each)))
            work.write(*[CoordinatorRecord(_key(group_id, partition)) for partition in islice(gone, MOST_REMOVED)])

    def _values(self, group_id: str, partition: TopicPartition) -> Iterator[OffsetValue]:
        """Yield the committed offset of a partition, and the pending ones."""
        if (committed := self.of(group_id).get(partition)) is not None:
            yield committed
        yield from self.pending.of(group_id).get(partition, {}).values()

    def expire(self, group: Group, now_ms: int, work: Work) -> bool:
        """Delete up to MOST_REMOVED expired offsets of a group; return whether it has none left after that."""
        pending, committed = self.pending.of(group.group_id), self.of(group.group_id)
        gone = (
            partition
            for partition, value in committed.items()
            if partition not in pending and self._has_expired(group, partition, value, now_ms)
        )
        expired = list(islice(gone, MOST_REMOVED))
        work.write(*[CoordinatorRecord(_key(group.group_id, partition)) for partition in expired])
        return len(expired) == len(committed) and not pending

    def _has_expired(self, group: Group, partition: TopicPartition, value: OffsetValue, now_ms: int) -> bool:
        if self._is_of_another(partition, value):
            return True
        if group.is_subscribed_to(partition.topic):
            return False
        since_ms = group.offset_unused_since(value)
        if since_ms is None:
            return False
        if value.expire_timestamp_ms != NO_TIMESTAMP:
            return now_ms >= value.expire_timestamp_ms
        return now_ms - since_ms >= self.config.offsets_retention_minutes * MINUTE_MS

    def replay(
        self, key: OffsetKey, value: OffsetValue | None, log_offset: int | None = None, producer_id: int | None = None
    ) -> None:
        """Apply a record to the state.

        log_offset: of the record, if it may not be committed yet; otherwise None. producer_id: of the transaction that
        the record was written in; None: of no transaction.
        """
        partition = TopicPartition(key.topic, key.partition)
        if producer_id is not None and value is not None:
            self.pending.put(producer_id, key.group_id, partition, value)
            return
        self.pending.drop(key.group_id, partition)
        self._note_change(key.group_id, partition, log_offset)
        self._set(key.group_id, partition, value)

    def end_transaction(self, producer_id: int, *, is_commit: bool, log_offset: int | None = None) -> Iterable[str]:
        """Apply a marker: the producer's pending offsets take effect or are dropped. Return their groups' ids.

        log_offset: of the marker, if it may not be committed yet; otherwise None.
        """
        ended = self.pending.end(producer_id, is_commit=is_commit)
        for group_id, partition, value in ended:
            self._note_change(group_id, partition, log_offset)
            if is_commit:
                self._set(group_id, partition, value)
        return dict.fromkeys(each.group_id for each in ended)

    def _note_change(self, group_id: str, partition: TopicPartition, log_offset: int | None) -> None:
        if log_offset is not None:
            self._uncommitted.append(
                _UncommittedChange(log_offset, group_id, partition, self.of(group_id).get(partition))
            )

    def _set(self, group_id: str, partition: TopicPartition, value: OffsetValue | None) -> None:
        if value is not None:
            self._groups.setdefault(group_id, {})[partition] = value
            return
        committed = self._groups.get(group_id, {})
        committed.pop(partition, None)
        if not committed:
            self._groups.pop(group_id, None)


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
        topic_id=value.topic_id if value.topic_id != ZERO_ID else None,
    )


def _unstable(partition: TopicPartition) -> CommittedOffset:
    return CommittedOffset(
        partition=partition, error=UnstableOffsetCommit(f"the offset of {partition} may still change")
    )
