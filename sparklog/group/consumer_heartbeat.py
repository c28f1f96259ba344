"""ConsumerGroupHeartbeat (key 68): the one request with which a consumer takes part in its group (KIP-848).

A heartbeat goes through these steps. A heartbeat that changes nothing writes no records:

    1. find the member, or create it (epoch 0), or let it replace the static member with its instance id
    2. take the member's description from the request: a ConsumerMember record
    3. match regular expressions with the topics: Regex records
    4. raise the group epoch, if a subscription or a topic that is read has changed: a ConsumerGroup record
    5. call the assignor for the new epoch's target: Target records for members whose target differs, and a TargetEpoch.
       This happens at most every group.consumer.assignment.interval.ms, so that the start of a thousand members does
       not cause a thousand assignments. Until then the previous target holds (KIP-1263)
    6. move the member one step towards its target (`Reconciliation` in consumer_member.py): a Current record

With epoch -1 a member leaves. With -2 a static member leaves temporarily: it keeps its partitions until its session
ends. A member is removed if its session ends, or if it does not give up partitions within its own rebalance timeout.
Then the group epoch rises, and the next heartbeat of any member makes the new target.

A member sends its present epoch, or the previous one if it owns only partitions that it has now: then the answer with
the new epoch was lost. Any other epoch is fenced, and the member starts again with epoch 0.

Regular expressions are matched with the topics before a heartbeat is decided, in slices (`topic_pattern.match`). An
expression is matched again only after the topics have changed.

Differs from Kafka:

- Regular expressions are matched before the answer to the heartbeat that sends them, not after it. An expression of
  more than 64 KiB is refused (INVALID_REGULAR_EXPRESSION).
- The topic names in the subscriptions of a group may have at most 16 times message.max.bytes in all, as the metadata of
  classic groups.
- Topics are compared in the first heartbeat after a change of any topic.
- A static member may repeat a join with the same member id, as the first answer may be lost; Kafka refuses it with
  UNRELEASED_INSTANCE_ID.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import (
    FencedMemberEpoch,
    GroupMaxSizeReached,
    InvalidRequest,
    UnknownTopicId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from sparklog.base.ids import TopicPartition
from sparklog.base.pattern import compile_pattern
from sparklog.group.assignors import ASSIGNORS, GroupSpec
from sparklog.group.assignors.spec import MemberSpec
from sparklog.group.consumer_group import ConsumerGroup, GroupEdit
from sparklog.group.consumer_member import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerMember,
    IdPartition,
    MemberState,
    Reconciliation,
    flatten,
    to_target_value,
)
from sparklog.group.group import MOST_METADATA, TopicsImage
from sparklog.group.requests import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatResponse
from sparklog.group.topic_pattern import UNMATCHED, TopicMatches
from sparklog.offsets_topic.records import (
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerMemberKey,
    CurrentAssignmentKey,
    RegexKey,
    RegexValue,
    TargetAssignmentKey,
    TargetEpochKey,
    TargetEpochValue,
)


class SessionTimer(Struct, frozen=True):
    """Key of the timer that ends a member's session."""

    group_id: str
    member_id: str


class RevocationTimer(Struct, frozen=True):
    """Key of the timer that limits the time in which a member gives up partitions."""

    group_id: str
    member_id: str


class RejoinTimer(Struct, frozen=True):
    """Key of the timer that limits the time in which a classic member joins again."""

    group_id: str
    member_id: str


class SyncTimer(Struct, frozen=True):
    """Key of the timer that limits the time in which a classic member syncs after its join."""

    group_id: str
    member_id: str


MemberTimer = SessionTimer | RevocationTimer | RejoinTimer | SyncTimer


class AssignTimer(Struct, frozen=True):
    """Key of the timer that makes a group's delayed assignment."""

    group_id: str


class ConsumerHeartbeats:
    """Decides heartbeats, for one group at a time. A refused request raises KafkaError; the caller drops its draft."""

    def __init__(self, config: BrokerConfig, topics: TopicsImage, new_member_id: Callable[[], str]) -> None:
        self._config = config
        self._topics = topics
        self._new_member_id = new_member_id

    def check(self, request: ConsumerGroupHeartbeat) -> None:
        """Raise InvalidRequest or UnsupportedAssignor if the request is invalid for every group."""
        for name, value in (
            ("GroupId", request.group_id),
            ("InstanceId", request.group_instance_id),
            ("RackId", request.rack_id),
        ):
            if value is not None and not value.strip():
                raise InvalidRequest(f"{name} can't be empty.")
        if request.member_epoch == JOIN_EPOCH:
            if request.rebalance_timeout_ms == -1:
                raise InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
            if request.owned_partitions is None or request.owned_partitions:
                raise InvalidRequest("TopicPartitions must be empty when (re-)joining.")
            if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
                raise InvalidRequest("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null.")
        elif not request.member_id:
            raise InvalidRequest("MemberId can't be empty.")
        elif request.member_epoch == LEAVE_STATIC_EPOCH and request.group_instance_id is None:
            raise InvalidRequest("InstanceId can't be null.")
        elif request.member_epoch < LEAVE_STATIC_EPOCH:
            raise InvalidRequest(f"MemberEpoch is {request.member_epoch}, must be greater than or equal to -2.")
        if request.server_assignor is not None and request.server_assignor not in self._config.group_consumer_assignors:
            raise UnsupportedAssignor(
                f"ServerAssignor {request.server_assignor} is not supported. "
                f"Supported assignors: {', '.join(self._config.group_consumer_assignors)}."
            )

    def heartbeat(
        self, edit: GroupEdit, request: ConsumerGroupHeartbeat, now_ms: int, matches: TopicMatches = UNMATCHED
    ) -> ConsumerGroupHeartbeatResponse:
        """Carry out steps 1 to 6 for a member that does not leave, and return the answer.

        The answer has the assignment if the member joins or has sent its full state, or if the assignment has changed.
        """
        group_id, group = edit.group.group_id, edit.group
        if len(group.members) >= self._config.group_consumer_max_size and request.member_id not in group.members:
            raise GroupMaxSizeReached(f"group {group_id!r} has its {self._config.group_consumer_max_size} members")
        asked = request.owned_partitions
        owned = None if asked is None else self.ids_of(asked)
        before = self._find_member(edit, request, owned)
        member = _described(before, request)
        changed = self.update_member(edit, before, member, now_ms, matches)
        self.update_target(edit, now_ms)
        member = self.reconcile(edit, member.member_id, owned, subscription_changed=changed)
        edit.draft.set_timer(SessionTimer(group_id, member.member_id), self._config.group_consumer_session_timeout_ms)
        is_full = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.owned_partitions is not None
        )
        shows = request.member_epoch == JOIN_EPOCH or is_full or before.assigned.keys() != member.assigned.keys()
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=self._config.group_consumer_heartbeat_interval_ms,
            assignment=self.names_of(member.assigned) if shows else None,
        )

    @staticmethod
    def go_away(edit: GroupEdit, member: ConsumerMember) -> None:
        """Let a static member leave temporarily (epoch -2): it keeps its place until it returns or its session ends.

        The member has stopped reading, so the partitions that it had to give up are free at once.
        """
        away = replace(member, member_epoch=LEAVE_STATIC_EPOCH, revoking={})
        edit.draft.cancel_timer(RevocationTimer(edit.group.group_id, member.member_id))
        edit.write(
            CurrentAssignmentKey(group_id=edit.group.group_id, member_id=member.member_id), away.to_current_value()
        )

    @staticmethod
    def leaving_member(group: ConsumerGroup, request: ConsumerGroupHeartbeat) -> ConsumerMember:
        """Return the member that leaves with this heartbeat.

        Raises UnknownMemberId, or FencedInstanceId if another member has its instance id.
        """
        if request.group_instance_id is None:
            return group.get(request.member_id)
        return group.check_instance(request.group_instance_id, request.member_id)

    def remove(self, edit: GroupEdit, member_ids: Collection[str]) -> None:
        """Remove members that leave or have failed, and raise the group epoch."""
        group_id = edit.group.group_id
        for member_id in member_ids:
            self._write_tombstones(edit, member_id)
        self._drop_regexes(edit)
        value = ConsumerGroupValue(epoch=edit.group.epoch + 1, metadata_hash=edit.group.hash_topics())
        edit.write(ConsumerGroupKey(group_id=group_id), value)

    # Step 1

    def _find_member(
        self, edit: GroupEdit, request: ConsumerGroupHeartbeat, owned: Collection[IdPartition] | None
    ) -> ConsumerMember:
        group, joins = edit.group, request.member_epoch == JOIN_EPOCH
        if not joins:
            if request.group_instance_id is None:
                member = group.get(request.member_id)
            else:
                member = group.check_instance(request.group_instance_id, request.member_id)
            _check_epoch(member, request.member_epoch, owned)
            return member
        member_id = request.member_id or self._new_member_id()
        existing = group.get_static(request.group_instance_id) if request.group_instance_id is not None else None
        if existing is None:
            return group.members.get(member_id) or ConsumerMember(member_id=member_id)
        if existing.member_id == member_id and existing.member_epoch != LEAVE_STATIC_EPOCH:
            return existing
        if existing.classic is None and existing.member_epoch != LEAVE_STATIC_EPOCH:
            raise UnreleasedInstanceId(
                f"{member_id!r} cannot join: instance id {existing.instance_id!r} is that of {existing.member_id!r}"
            )
        return self.replace_static(edit, existing, member_id)

    def replace_static(self, edit: GroupEdit, existing: ConsumerMember, member_id: str) -> ConsumerMember:
        """Write records that replace `existing` by a member with another id, and return that member.

        The new member has the instance id, subscription, target and partitions of `existing`.
        """
        group_id, target = edit.group.group_id, edit.group.target.get(existing.member_id, {})
        member = replace(existing, member_id=member_id, member_epoch=JOIN_EPOCH, previous_member_epoch=JOIN_EPOCH)
        self._write_tombstones(edit, existing.member_id)
        edit.write(ConsumerMemberKey(group_id=group_id, member_id=member_id), member.to_member_value())
        edit.write(TargetAssignmentKey(group_id=group_id, member_id=member_id), to_target_value(target))
        edit.write(CurrentAssignmentKey(group_id=group_id, member_id=member_id), member.to_current_value())
        return member

    def _write_tombstones(self, edit: GroupEdit, member_id: str) -> None:
        group_id = edit.group.group_id
        edit.write(CurrentAssignmentKey(group_id=group_id, member_id=member_id))
        edit.write(TargetAssignmentKey(group_id=group_id, member_id=member_id))
        edit.write(ConsumerMemberKey(group_id=group_id, member_id=member_id))
        edit.group.rejoining.discard(member_id)
        for timer in timers_of(group_id, member_id):
            edit.draft.cancel_timer(timer)

    # Steps 2 to 4

    def update_member(
        self, edit: GroupEdit, before: ConsumerMember, member: ConsumerMember, now_ms: int, matches: TopicMatches
    ) -> bool:
        """Write the member's description, and a new group epoch if needed; return whether its subscription changed.

        The epoch rises if the member is new, or if its subscription or the topics that the group reads have changed.
        """
        regex_changed = before.subscribed_topic_regex != member.subscribed_topic_regex
        if regex_changed and member.subscribed_topic_regex:
            compile_pattern(member.subscribed_topic_regex)
        is_new = member.member_id not in edit.group.members
        if is_new or before != member:
            key = ConsumerMemberKey(group_id=edit.group.group_id, member_id=member.member_id)
            edit.write(key, member.to_member_value())
            self._check_names(edit)
        changed = regex_changed or before.subscribed_topic_names != member.subscribed_topic_names
        version = self._topics.version
        if is_new or changed or edit.base.compared_with != version:
            self._drop_regexes(edit)
            resolved = self._resolve(edit, matches, now_ms)
            metadata_hash = edit.group.hash_topics()
            if is_new or changed or resolved or metadata_hash != edit.group.metadata_hash:
                value = ConsumerGroupValue(epoch=edit.group.epoch + 1, metadata_hash=metadata_hash)
                edit.write(ConsumerGroupKey(group_id=edit.group.group_id), value)
            elif all(edit.group.matched_with.get(text) == version for text in edit.group.regex_counts()):
                edit.base.compare_with(version)
        return changed

    def _check_names(self, edit: GroupEdit) -> None:
        """Raise GroupMaxSizeReached if the members' subscriptions have grown beyond the limit."""
        most = MOST_METADATA * self._config.topic_defaults.max_message_bytes
        if edit.group.names_bytes > max(most, edit.base.names_bytes):
            raise GroupMaxSizeReached(
                f"the members of group {edit.group.group_id!r} subscribe to more than {most} bytes of topic names"
            )

    @staticmethod
    def _drop_regexes(edit: GroupEdit) -> None:
        """Delete the Regex records of expressions to which no member is subscribed any more."""
        for text in edit.group.regexes.keys() - edit.group.regex_counts().keys():
            edit.write(RegexKey(group_id=edit.group.group_id, regular_expression=text))

    @staticmethod
    def _resolve(edit: GroupEdit, matches: TopicMatches, now_ms: int) -> bool:
        """Write the matches of the group's regular expressions; return whether one matches other topics than before.

        An expression that is not in `matches` keeps its topics: a later heartbeat matches it.
        """
        changed = False
        for text in sorted(edit.group.regex_counts().keys() & matches.topics.keys()):
            topics, known = matches.topics[text], edit.group.regexes.get(text)
            if known is None or set(known.topics) != set(topics):
                changed = changed or bool(topics) or known is not None
                value = RegexValue(topics=topics, version=matches.version, timestamp_ms=now_ms)
                edit.write(RegexKey(group_id=edit.group.group_id, regular_expression=text), value)
            else:
                edit.base.matched_with[text] = edit.group.matched_with[text] = matches.version
        return changed

    # Step 5

    def update_target(self, edit: GroupEdit, now_ms: int) -> None:
        """Make a new target if the group epoch is ahead of the present one; set a timer if it is too early."""
        group = edit.group
        if self.is_assignment_due(group, now_ms):
            self._assign(edit, now_ms)
        elif group.epoch > group.target_epoch:
            due_ms = group.assigned_at_ms + self._config.group_consumer_assignment_interval_ms
            edit.draft.set_timer(AssignTimer(group.group_id), due_ms - now_ms)

    def is_assignment_due(self, group: ConsumerGroup, now_ms: int) -> bool:
        """Return whether the group needs a new target, and the interval since the last one has passed.

        A last target with a time in the future does not delay the next one.
        """
        since_ms = now_ms - group.assigned_at_ms
        is_too_early = 0 <= since_ms < self._config.group_consumer_assignment_interval_ms
        return group.epoch > group.target_epoch and not is_too_early

    def _assign(self, edit: GroupEdit, now_ms: int) -> None:
        group = edit.group
        subscriptions: dict[tuple[frozenset[str], str], dict[UUID, int]] = {}
        members: dict[str, MemberSpec] = {}
        for member_id, member in group.members.items():
            key = (member.subscribed_topic_names, member.subscribed_topic_regex)
            if key not in subscriptions:
                subscriptions[key] = group.subscription(member)
            members[member_id] = MemberSpec(
                topics=frozenset(subscriptions[key]),
                instance_id=member.instance_id,
                partitions=group.target.get(member_id, {}),
            )
        counts = {topic: count for topics in subscriptions.values() for topic, count in topics.items()}
        assign = ASSIGNORS[group.preferred_assignor(self._config.group_consumer_assignors)]
        result = assign(GroupSpec(members=members, partition_counts=counts))
        for member_id in sorted(result):
            if group.target.get(member_id) != result[member_id]:
                key_of_member = TargetAssignmentKey(group_id=group.group_id, member_id=member_id)
                edit.write(key_of_member, to_target_value(result[member_id]))
        value = TargetEpochValue(assignment_epoch=group.epoch, assignment_timestamp_ms=now_ms)
        edit.write(TargetEpochKey(group_id=group.group_id), value)

    # Step 6

    def reconcile(
        self,
        edit: GroupEdit,
        member_id: str,
        owned: Collection[IdPartition] | None,
        *,
        subscription_changed: bool,
    ) -> ConsumerMember:
        """Move a member one step towards its target (step 6), and return it.

        owned: the partitions that the member reports as owned; None: not reported
        """
        group = edit.group
        before = group.members[member_id]
        if not subscription_changed and before.is_reconciled_to(group.target_epoch):
            return before
        member = Reconciliation(
            target_epoch=group.target_epoch,
            target=flatten(group.target.get(member_id, {})),
            subscribed=group.subscription(before),
            is_assigned=group.is_assigned,
            owned=owned,
            subscription_changed=subscription_changed,
        ).step(before)
        if member == before:
            return before
        edit.write(CurrentAssignmentKey(group_id=group.group_id, member_id=member_id), member.to_current_value())
        if member.classic is None:
            timer = RevocationTimer(group.group_id, member_id)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                edit.draft.set_timer(timer, member.rebalance_timeout_ms)
            else:
                edit.draft.cancel_timer(timer)
        return member

    # Names and ids

    def names_of(self, partitions: Collection[IdPartition]) -> list[TopicPartition]:
        """Return the partitions by topic name, sorted; partitions of deleted topics are left out."""
        names: dict[UUID, str | None] = {}
        for topic_id, _ in partitions:
            if topic_id not in names:
                names[topic_id] = self._name_of(topic_id)
        return sorted(TopicPartition(name, number) for topic_id, number in partitions if (name := names[topic_id]))

    def _name_of(self, topic_id: UUID) -> str | None:
        try:
            return self._topics.get_by_id(topic_id).name
        except UnknownTopicId:
            return None

    def ids_of(self, partitions: Collection[TopicPartition]) -> set[IdPartition]:
        """Return the partitions by topic id; partitions of topics that do not exist are left out."""
        found = ((self._topics.find(topic), number) for topic, number in partitions)
        return {(topic.topic_id, number) for topic, number in found if topic}


def timers_of(group_id: str, member_id: str) -> tuple[MemberTimer, ...]:
    """Return the keys of all timers that may run for a member."""
    return (
        SessionTimer(group_id, member_id),
        RevocationTimer(group_id, member_id),
        RejoinTimer(group_id, member_id),
        SyncTimer(group_id, member_id),
    )


def _described(member: ConsumerMember, request: ConsumerGroupHeartbeat) -> ConsumerMember:
    """Return the member with the description in the request; fields that are None stay as they were."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        subscribed_topic_names=member.subscribed_topic_names if names is None else frozenset(names),
        subscribed_topic_regex=member.subscribed_topic_regex if regex is None else regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout == -1 else timeout,
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
        classic=None,
    )


def _check_epoch(member: ConsumerMember, epoch: int, owned: Collection[IdPartition] | None) -> None:
    """Raise FencedMemberEpoch unless the epoch is the member's, or the previous one after a lost answer."""
    if epoch == member.member_epoch:
        return
    lost_answer = (
        epoch == member.previous_member_epoch
        and epoch < member.member_epoch
        and owned is not None
        and all(partition in member.assigned for partition in owned)
    )
    if not lost_answer:
        raise FencedMemberEpoch(
            f"member {member.member_id!r} has epoch {member.member_epoch}, not {epoch}: "
            "it must abandon all its partitions and rejoin"
        )
