"""A group of the consumer protocol (KIP-848): its state, changed by `replay` alone.

There are three kinds of epochs. The group epoch rises with every change that requires a new assignment: a member joins
or leaves, a subscription changes, or a topic that the group reads is created, grows or is deleted. The target
assignment has the group epoch that it was made for. A member's epoch is that of the last target for which it has given
up its partitions. The group's states are

    Empty         without members
    Assigning     the target assignment is older than the group epoch
    Reconciling   a member has not reached the target
    Stable        all members have reached it

As in Kafka, the group epoch starts at 1, and the first member makes it 2. Not in the log: the version of the cluster's
topics that the group was last compared with, and the members that must join again.

Differs from Kafka: the metadata hash is another function of the same data (Kafka's is XXH3). A group that Kafka has
written gets a new target when its first member joins; no partition moves.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from uuid import UUID

from sparklog.base.errors import (
    FencedInstanceId,
    IllegalGeneration,
    NonEmptyGroup,
    StaleMemberEpoch,
    UnknownMemberId,
)
from sparklog.group.assignors import Partitions
from sparklog.group.consumer_member import (
    ConsumerMember,
    IdPartition,
    from_target_value,
)
from sparklog.group.group import CONSUMER, TopicsImage, Work
from sparklog.group.requests import OffsetCommit, OffsetFetch, OffsetToCommit, TxnOffsetCommit
from sparklog.offsets_topic.records import (
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerMemberKey,
    ConsumerMemberValue,
    CoordinatorRecord,
    CurrentAssignmentKey,
    CurrentAssignmentValue,
    Key,
    OffsetValue,
    RegexKey,
    RegexValue,
    TargetAssignmentKey,
    TargetAssignmentValue,
    TargetEpochKey,
    TargetEpochValue,
    Value,
)

FIRST_EPOCH = 1
NOTHING_TO_READ = 0
_NOT_KEPT = frozenset({"topics", "rejoining", "compared_with", "matched_with"})
_NO_TARGET = TargetEpochValue(assignment_epoch=-1)
EMPTY, ASSIGNING, RECONCILING, STABLE = "Empty", "Assigning", "Reconciling", "Stable"

ConsumerKey = (
    ConsumerGroupKey | ConsumerMemberKey | TargetEpochKey | TargetAssignmentKey | CurrentAssignmentKey | RegexKey
)
"""The keys of the records of a consumer group."""


class ConsumerGroup:
    """One group. Its values are immutable, so a copy shares them. Implements Group."""

    def __init__(self, group_id: str, topics: TopicsImage) -> None:
        self.group_id = group_id
        self.topics = topics
        self.epoch = FIRST_EPOCH
        self.metadata_hash = NOTHING_TO_READ
        self.target_epoch = 0
        self.assigned_at_ms = 0
        """Time of the target assignment."""
        self.members: dict[str, ConsumerMember] = {}
        self._name_counts: Counter[str] = Counter()
        self._regex_counts: Counter[str] = Counter()
        """Number of members that are subscribed to each topic name and regular expression. Counted with each change: to
        count at each join would take time by the square of the members."""
        self.names_bytes = 0
        """Sum of the lengths of all members' subscribed topic names."""
        self.static_members: dict[str, str] = {}
        """Member ids by instance id."""
        self.target: dict[str, Partitions] = {}
        self.owners: dict[IdPartition, str] = {}
        """For each partition, the id of the member that has it, assigned or revoking."""
        self.regexes: dict[str, RegexValue] = {}
        """The topics that match each regular expression."""
        self.rejoining: set[str] = set()
        """Members of the classic protocol that must join again; a copy shares this set."""
        self.compared_with = -1
        """Version of the topics at the last comparison with the hash and the regular expressions."""
        self.matched_with: dict[str, int] = {}
        """Version of the topics at the last match of each regular expression."""

    def compare_with(self, version: int) -> None:
        """Record that the hash and the regular expressions agree with this version of the topics."""
        self.compared_with = version

    def copy(self) -> ConsumerGroup:
        """Return a copy that can be changed separately."""
        other = ConsumerGroup(self.group_id, self.topics)
        other.epoch, other.metadata_hash = self.epoch, self.metadata_hash
        other.target_epoch, other.assigned_at_ms = self.target_epoch, self.assigned_at_ms
        other.members, other.static_members = self.members.copy(), self.static_members.copy()
        other._name_counts, other._regex_counts = self._name_counts.copy(), self._regex_counts.copy()
        other.names_bytes = self.names_bytes
        other.target, other.owners, other.regexes = self.target.copy(), self.owners.copy(), self.regexes.copy()
        other.rejoining, other.compared_with = self.rejoining, self.compared_with
        other.matched_with = self.matched_with.copy()
        return other

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConsumerGroup) and self._kept() == other._kept()

    __hash__ = None  # type: ignore[assignment]

    def _kept(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name not in _NOT_KEPT}

    # The interface of every group (group.Group)

    @property
    def group_type(self) -> str:
        return CONSUMER

    @property
    def protocol_type(self) -> str:
        return "consumer"

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state_name(self) -> str:
        if not self.members:
            return EMPTY
        if self.epoch > self.target_epoch:
            return ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return STABLE
        return RECONCILING

    def check_commit(self, request: OffsetCommit) -> None:
        """Allow members to commit the offsets of partitions they have had since that epoch.

        Any client may commit if the group is empty. In a transaction, a client that names no member may always commit.
        A member with a wrong epoch then gets IllegalGeneration: clients know no other error there.

        Raises UnknownMemberId, FencedInstanceId, StaleMemberEpoch, or IllegalGeneration for a member of the classic
        protocol.
        """
        if request.generation_or_epoch < 0 and self.is_empty:
            return  # a tool sets the offsets of an empty group
        in_transaction = isinstance(request, TxnOffsetCommit)
        if in_transaction and not request.names_member:
            return
        member = self.get(request.member_id)
        if request.group_instance_id is not None and self.static_members.get(request.group_instance_id) is not None:
            self.check_instance(request.group_instance_id, request.member_id)
        if member.classic is not None:
            _check_generation(member, request.generation_or_epoch)
        elif request.generation_or_epoch > member.member_epoch or (
            request.generation_or_epoch < member.member_epoch
            and not all(self._had_by(member, offset, request.generation_or_epoch) for offset in request.offsets)
        ):
            kind = IllegalGeneration if in_transaction else StaleMemberEpoch
            raise kind(f"epoch {request.generation_or_epoch}: the member is in {member.member_epoch}")

    def _had_by(self, member: ConsumerMember, offset: OffsetToCommit, epoch: int) -> bool:
        """Return whether the member has had the partition since `epoch` or longer: then a commit with it is valid."""
        topic = self.topics.find(offset.partition.topic)
        key = (topic.topic_id, offset.partition.partition) if topic else None
        since = member.assigned.get(key, member.revoking.get(key)) if key else None
        return since is not None and since <= epoch

    def check_fetch(self, request: OffsetFetch) -> None:
        """Allow members in their current epoch, and clients that name no member, to fetch offsets.

        Raises UnknownMemberId, StaleMemberEpoch, or IllegalGeneration for a member of the classic protocol.
        """
        if request.member_id is None and request.member_epoch < 0:
            return
        member = self.get(request.member_id or "")
        if member.classic is not None:
            _check_generation(member, request.member_epoch)
        elif request.member_epoch != member.member_epoch:
            raise StaleMemberEpoch(f"epoch {request.member_epoch}: the member is in {member.member_epoch}")

    def check_delete(self) -> None:
        """Allow the deletion of an empty group. Raises NonEmptyGroup."""
        if self.members:
            raise NonEmptyGroup(f"group {self.group_id!r} has {len(self.members)} members")

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self._name_counts or any(topic in found.topics for found in self.regexes.values())

    def offset_unused_since(self, offset: OffsetValue) -> int | None:
        """Return the time of the commit, whatever the group's state, as in Kafka; subscriptions protect offsets."""
        return offset.commit_timestamp_ms

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        key = self.group_id
        return [
            *(CoordinatorRecord(CurrentAssignmentKey(group_id=key, member_id=member_id)) for member_id in self.members),
            *(CoordinatorRecord(TargetAssignmentKey(group_id=key, member_id=member_id)) for member_id in self.target),
            CoordinatorRecord(TargetEpochKey(group_id=key)),
            *(CoordinatorRecord(ConsumerMemberKey(group_id=key, member_id=member_id)) for member_id in self.members),
            *(CoordinatorRecord(RegexKey(group_id=key, regular_expression=text)) for text in self.regexes),
            CoordinatorRecord(ConsumerGroupKey(group_id=key)),
        ]

    # Queries of the protocol

    def get(self, member_id: str) -> ConsumerMember:
        """Return the member. Raises UnknownMemberId."""
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"{member_id!r} is not a member of group {self.group_id!r}")
        return member

    def get_static(self, instance_id: str) -> ConsumerMember | None:
        """Return the member with this instance id; None if there is none."""
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def check_instance(self, instance_id: str, member_id: str) -> ConsumerMember:
        """Return the static member. Raises UnknownMemberId, or FencedInstanceId if another has its instance id."""
        member = self.get_static(instance_id)
        if member is None:
            raise UnknownMemberId(f"instance id {instance_id!r} is unknown in group {self.group_id!r}")
        if member.member_id != member_id:
            raise FencedInstanceId(f"{member_id!r} with instance id {instance_id!r} was fenced by {member.member_id!r}")
        return member

    def is_assigned(self, partition: IdPartition) -> bool:
        """Return whether a member has the partition, or has not confirmed yet that it has given it up."""
        return partition in self.owners

    def subscription(self, member: ConsumerMember) -> dict[UUID, int]:
        """Return the existing topics that a member is subscribed to, by name or expression, with partition counts."""
        resolved = self.regexes.get(member.subscribed_topic_regex)
        return self._existing(member.subscribed_topic_names.union(resolved.topics if resolved else ()))

    def subscribed_names(self) -> set[str]:
        """Return all topic names that a member is subscribed to."""
        return set(self._name_counts).union(*(found.topics for found in self.regexes.values()))

    def hash_topics(self) -> int:
        """Return a hash of the names, ids and partition counts of the topics that the group reads; 0 without topics."""
        digest = hashlib.blake2b(digest_size=8)
        found = [topic for name in sorted(self.subscribed_names()) if (topic := self.topics.find(name))]
        for topic in found:
            digest.update(f"{topic.name} {topic.topic_id} {len(topic.partitions)}\n".encode())
        return int.from_bytes(digest.digest(), "big", signed=True) if found else NOTHING_TO_READ

    def preferred_assignor(self, allowed: Sequence[str]) -> str:
        """Return the assignor that most members ask for; the first of the configured ones if no member asks."""
        votes = Counter(m.server_assignor for m in self.members.values() if m.server_assignor in allowed)
        return max(allowed, key=lambda name: votes[name])

    def regex_counts(self) -> Mapping[str, int]:
        """Return the number of members subscribed to each regular expression."""
        return self._regex_counts

    def _existing(self, names: Collection[str]) -> dict[UUID, int]:
        found = (self.topics.find(name) for name in names)
        return {topic.topic_id: len(topic.partitions) for topic in found if topic}

    # Replay

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply a record of this group, except the ConsumerGroup tombstone, for which the caller drops the group."""
        match record.key:
            case ConsumerGroupKey():
                if isinstance(record.value, ConsumerGroupValue):
                    self.epoch, self.metadata_hash = record.value.epoch, record.value.metadata_hash
            case TargetEpochKey():
                value = record.value if isinstance(record.value, TargetEpochValue) else _NO_TARGET
                self.target_epoch, self.assigned_at_ms = value.assignment_epoch, value.assignment_timestamp_ms
            case TargetAssignmentKey(member_id=member_id):
                if isinstance(record.value, TargetAssignmentValue):
                    self.target[member_id] = from_target_value(record.value)
                else:
                    self.target.pop(member_id, None)
            case RegexKey(regular_expression=text):
                if isinstance(record.value, RegexValue):
                    self.regexes[text] = record.value
                    self.matched_with[text] = record.value.version
                else:
                    self.regexes.pop(text, None)
                    self.matched_with.pop(text, None)
            case ConsumerMemberKey(member_id=member_id):
                self._replay_member(member_id, record.value if isinstance(record.value, ConsumerMemberValue) else None)
            case CurrentAssignmentKey(member_id=member_id):
                self._replay_current(
                    member_id, record.value if isinstance(record.value, CurrentAssignmentValue) else None
                )
            case _:
                raise TypeError(f"{type(record.key).__name__} is not a key of these groups")

    def _replay_member(self, member_id: str, value: ConsumerMemberValue | None) -> None:
        old = self.members.get(member_id)
        if value is not None:
            self._put((old or ConsumerMember(member_id=member_id)).with_member_value(value))
        elif old is not None:
            self._release(old)
            self._count(old, -1)
            del self.members[member_id]
            if old.instance_id is not None and self.static_members.get(old.instance_id) == member_id:
                del self.static_members[old.instance_id]

    def _replay_current(self, member_id: str, value: CurrentAssignmentValue | None) -> None:
        old = self.members.get(member_id)
        if value is not None:
            self._put((old or ConsumerMember(member_id=member_id)).with_current_value(value))
        elif old is not None:
            self._put(old.without_current_value())

    def _put(self, member: ConsumerMember) -> None:
        if old := self.members.get(member.member_id):
            self._release(old)
            self._count(old, -1)
        self._count(member, 1)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.owners.update(dict.fromkeys(_all(member), member.member_id))

    def _count(self, member: ConsumerMember, by: int) -> None:
        """Add a member's subscription to the counts (`by` 1), or remove it (-1)."""
        names, regex = member.subscribed_topic_names, member.subscribed_topic_regex
        self.names_bytes += by * sum(map(len, names))
        for counts, keys in ((self._name_counts, names), (self._regex_counts, (regex,) if regex else ())):
            for key in keys:
                counts[key] += by
                if not counts[key]:
                    del counts[key]

    def _release(self, member: ConsumerMember) -> None:
        for partition in _all(member):
            if self.owners.get(partition) == member.member_id:
                del self.owners[partition]


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.member_epoch:
        raise IllegalGeneration(f"generation {generation}: the member is in {member.member_epoch}")


def _all(member: ConsumerMember) -> Iterator[IdPartition]:
    yield from member.assigned
    yield from member.revoking


class GroupEdit:
    """A group during a decision. `group` is the original until the first record, then a copy with all records replayed.

    A decision about a consumer group has several steps, each of which builds on the one before: a member's new
    subscription leads to a new epoch, the epoch to a new target, the target to a new assignment. `write` adds a step's
    record to the draft, and replays it into the copy by the same `replay` that later changes the group itself.
    """

    def __init__(self, group: ConsumerGroup, draft: Work) -> None:
        self.base = group
        self.group = group
        self.draft = draft

    def write(self, key: Key, value: Value | None = None) -> None:
        """Add a record; without a value, a tombstone."""
        if self.group is self.base:
            self.group = self.base.copy()
        record = CoordinatorRecord(key, value)
        self.draft.records.append(record)
        self.group.replay(record)
