"""A group of the classic protocol: its members, its generation, its state (org.apache.kafka.coordinator.group.classic).

This module holds the data and the queries; the decisions about a group are in `classic_groups.py`.

The log has one `GroupValue` for each generation: `snapshot` builds it, `restore` applies it. While a group prepares a
rebalance, its state is newer than the log, and `restore` does nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterable, Mapping, Sequence

from msgspec import Struct, field

from sparklog.base.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupIdNotFound,
    IllegalGeneration,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMemberId,
)
from sparklog.base.schemas import read_value
from sparklog.group.group import CLASSIC
from sparklog.group.requests import OffsetCommit, OffsetFetch, TxnOffsetCommit
from sparklog.group.states import (
    AWAITING_SYNC,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    GroupEvent,
    GroupState,
    next_state,
)
from sparklog.offsets_topic.records import (
    NO_TIMESTAMP,
    CoordinatorRecord,
    GroupKey,
    GroupValue,
    MemberMetadata,
    OffsetValue,
)
from sparklog.offsets_topic.schemas import SUBSCRIPTION

CONSUMER_PROTOCOL = "consumer"
Protocols = Sequence[tuple[str, bytes]]


class ClassicMember(Struct, kw_only=True, eq=False):
    """One member. The tickets belong to its waiting requests. Tickets and `is_new` are not in the log."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join_ticket: Hashable | None = None
    sync_ticket: Hashable | None = None
    is_new: bool = False
    """Whether its first join is not answered yet. It cannot send heartbeats until then, so its session still runs."""

    @property
    def is_static(self) -> bool:
        """Whether the member has an instance id, under which it may return (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def is_awaited(self) -> bool:
        """Whether the member waits for the coordinator, so that no heartbeat is due from it."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)

    def wait_to_join(self, ticket: Hashable | None) -> None:
        """Keep the ticket of a JoinGroup until the join phase ends; None: no request waits."""
        self.join_ticket = ticket

    def wait_to_sync(self, ticket: Hashable) -> None:
        """Keep the ticket of a SyncGroup until the leader has assigned."""
        self.sync_ticket = ticket

    def take_join_ticket(self) -> Hashable | None:
        """Remove and return the ticket of the waiting JoinGroup, for the caller to answer; None if there is none."""
        ticket, self.join_ticket = self.join_ticket, None
        return ticket

    def take_sync_ticket(self) -> Hashable | None:
        """Remove and return the ticket of the waiting SyncGroup, for the caller to answer; None if there is none."""
        ticket, self.sync_ticket = self.sync_ticket, None
        return ticket

    def has_joined(self) -> None:
        """Record that the first join is answered: heartbeats are due from now on."""
        self.is_new = False

    def set_timeouts(self, *, session_ms: int, rebalance_ms: int) -> None:
        """Set the time-outs of the member's newest join."""
        self.session_timeout_ms, self.rebalance_timeout_ms = session_ms, rebalance_ms

    def clear_assignment(self) -> None:
        """Drop the assignment: a rebalance has begun, or it could not be written."""
        self.assignment = b""

    @property
    def protocol_names(self) -> set[str]:
        """The names of the protocols that the member supports."""
        return {name for name, _ in self.protocols}

    def metadata_for(self, protocol: str | None) -> bytes:
        """Return the member's metadata for a protocol; empty if it does not support it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


class ClassicGroup(Struct, kw_only=True, eq=False):
    """A classic group. Members are in the order in which they joined; the first becomes the leader.

    Implements Group.
    """

    group_id: str
    state: GroupState = EMPTY
    state_timestamp_ms: int = NO_TIMESTAMP
    protocol_type: str | None = None
    protocol: str | None = None
    generation: int = 0
    leader: str | None = None
    members: dict[str, ClassicMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    """Member ids by instance id."""
    pending_joins: set[str] = field(default_factory=set)
    """Member ids that were given out, and not used for a join yet."""
    pending_syncs: set[str] = field(default_factory=set)
    is_new_member_added: bool = False
    """Whether a member joined while the first rebalance was being prepared."""
    initial_delay_ms: tuple[int, int] | None = None
    """In the first rebalance of an empty group: its current delay, and the longest extension after that."""
    subscribed_topics: frozenset[str] | None = None
    """None: not known."""
    _common: set[str] | None = None
    """The protocols that all members support; None: not computed. Cached because thousands of members may join."""
    _metadata_bytes: int | None = None
    """As `_common`: the bytes of all members' metadata."""

    # The interface of every group (group.py)

    @property
    def group_type(self) -> str:
        return CLASSIC

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return not self.members

    def check_commit(self, request: OffsetCommit) -> None:
        """Allow members of the current generation to commit offsets, and any client if the group is empty.

        In a transaction, a client that names no member may always commit: it may be too old to name one.

        Raises CoordinatorNotAvailable if the group was deleted, UnknownMemberId, FencedInstanceId, IllegalGeneration or
        RebalanceInProgress.
        """
        if self.state is DEAD:
            raise _deleted_group(self.group_id)
        in_transaction = isinstance(request, TxnOffsetCommit)
        if request.generation_or_epoch < 0 and self.state is EMPTY:
            return
        if request.names_member:
            self.check_member(request.member_id, request.group_instance_id)
            self.check_generation(request.generation_or_epoch)
        elif not in_transaction:
            raise UnknownMemberId(f"group {self.group_id!r} has members: only they can commit")
        if self.state is AWAITING_SYNC and not in_transaction:
            raise RebalanceInProgress(f"group {self.group_id!r} is being rebalanced")

    def check_fetch(self, request: OffsetFetch) -> None:
        """Allow any client to fetch the offsets of a classic group, unless it is dead. Raises GroupIdNotFound."""
        if self.state is DEAD:
            raise GroupIdNotFound(f"group {self.group_id!r} is dead")

    def check_delete(self) -> None:
        """Allow the deletion of an empty group. Raises GroupIdNotFound or NonEmptyGroup."""
        if self.state is DEAD:
            raise GroupIdNotFound(f"group {self.group_id!r} is dead")
        if self.state is not EMPTY:
            raise NonEmptyGroup(f"group {self.group_id!r} is not empty: it is {self.state.value}")

    # The first rebalance of an empty group

    def begin_initial_delay(self, delay_ms: int) -> None:
        """Begin to wait for more members, for `delay_ms` at a time, at most for the rebalance timeout."""
        self.initial_delay_ms = delay_ms, max(self.rebalance_timeout_ms - delay_ms, 0)

    def extend_initial_delay(self, delay_ms: int) -> int | None:
        """Return the next delay, at most `delay_ms`, if members have joined meanwhile; None: the delay is over."""
        if self.initial_delay_ms is None or not self.is_new_member_added:
            return None
        before_ms, remaining_ms = self.initial_delay_ms
        if remaining_ms <= 0:
            return None
        next_ms = min(delay_ms, remaining_ms)
        self.is_new_member_added = False
        self.initial_delay_ms = next_ms, max(remaining_ms - before_ms, 0)
        return next_ms

    def end_initial_delay(self) -> None:
        """End the initial delay with the join phase."""
        self.initial_delay_ms, self.is_new_member_added = None, False

    def begin_with(self, protocol_type: str) -> None:
        """Set the protocol type of the first member."""
        self.protocol_type = protocol_type

    def note_new_member(self) -> None:
        """Record a new member, which extends the initial delay if there is one."""
        self.is_new_member_added = self.initial_delay_ms is not None

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member is subscribed to the topic; True if the subscriptions of consumers are not known."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL
        return topic in self.subscribed_topics

    def offset_unused_since(self, offset: OffsetValue) -> int | None:
        """Return the time from which the offset's retention counts, as KIP-211 defines it."""
        if self.protocol_type is None:
            return offset.commit_timestamp_ms
        if self.state is EMPTY:
            return offset.commit_timestamp_ms if self.state_timestamp_ms == NO_TIMESTAMP else self.state_timestamp_ms
        is_known = self.protocol_type == CONSUMER_PROTOCOL and self.subscribed_topics is not None
        return offset.commit_timestamp_ms if is_known and self.state is STABLE else None

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        return [CoordinatorRecord(GroupKey(group_id=self.group_id))]

    # Checks

    def check_alive(self) -> None:
        """Raise CoordinatorNotAvailable if the group is dead, so that the client looks for its coordinator again."""
        if self.state is DEAD:
            raise _deleted_group(self.group_id)

    def check_member(self, member_id: str, group_instance_id: str | None) -> None:
        """Raise UnknownMemberId, or FencedInstanceId if another member has taken the instance id."""
        if group_instance_id is not None:
            known = self.static_members.get(group_instance_id)
            if known is None:
                raise UnknownMemberId(f"group {self.group_id!r} has no static member {group_instance_id!r}")
            if known != member_id:
                raise FencedInstanceId(f"{group_instance_id!r} is another member of group {self.group_id!r} by now")
        if member_id not in self.members:
            raise UnknownMemberId(f"group {self.group_id!r} has no member {member_id!r}")

    def check_generation(self, generation: int) -> None:
        """Raise IllegalGeneration unless the generation is the current one."""
        if generation != self.generation:
            raise IllegalGeneration(f"group {self.group_id!r} is in generation {self.generation}, not {generation}")

    # Queries

    @property
    def awaiting_join(self) -> int:
        """Number of members that wait for the end of the join phase."""
        return sum(member.join_ticket is not None for member in self.members.values())

    @property
    def has_all_joined(self) -> bool:
        """Whether every member waits for the end of the join phase, and no member id is unused."""
        return not self.pending_joins and all(member.join_ticket is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether a member with these protocols can join: all members must share at least one protocol."""
        if not self.members:  # empty, or all members left during the first join phase
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and not self._common_protocols().isdisjoint(dict(protocols))

    def metadata_bytes_with(self, member_id: str, protocols: Protocols) -> int:
        """Return the bytes of all members' metadata if this member has these protocols."""
        if self._metadata_bytes is None:
            self._metadata_bytes = sum(metadata_bytes(member.protocols) for member in self.members.values())
        before = self.members.get(member_id)
        return self._metadata_bytes + metadata_bytes(protocols) - (metadata_bytes(before.protocols) if before else 0)

    def choose_protocol(self) -> str:
        """Return the protocol that most members prefer, of those that all members support."""
        candidates = self._common_protocols()
        votes: dict[str, int] = {}
        for member in self.members.values():
            vote = next(name for name, _ in member.protocols if name in candidates)
            votes[vote] = votes.get(vote, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def _common_protocols(self) -> set[str]:
        if self._common is None:
            each = [member.protocol_names for member in self.members.values()]
            self._common = set.intersection(*each) if each else set()
        return self._common

    # Changes

    def move(self, event: GroupEvent, now_ms: int) -> None:
        """Change the state after an event. Raises IllegalGroupTransition with nothing changed."""
        self.state, self.state_timestamp_ms = next_state(self.state, event), now_ms

    def add(self, member: ClassicMember) -> None:
        """Add a new member, and remove its pending join. The member leads if there is no leader."""
        if self._common is not None:
            self._common = self._common & member.protocol_names if self.members else None
        self._metadata_bytes = self.metadata_bytes_with(member.member_id, member.protocols)
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self.leader = self.leader or member.member_id
        self.pending_joins.discard(member.member_id)

    def set_protocols(self, member: ClassicMember, protocols: Protocols) -> None:
        """Replace the protocols that a member supports."""
        self._metadata_bytes = self.metadata_bytes_with(member.member_id, protocols)
        before, member.protocols = member.protocol_names, tuple(protocols)
        if before != member.protocol_names:
            self._common = None

    def remove(self, member_id: str) -> ClassicMember | None:
        """Remove a member and return it, or None. If it was the leader, the first remaining member becomes leader."""
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._common = self._metadata_bytes = None
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def replace_static(self, group_instance_id: str, new_id: str) -> ClassicMember:
        """Give a static member a new id, and return the member, which keeps its place."""
        old_id = self.static_members[group_instance_id]
        member = self.members[old_id]
        member.member_id = new_id
        self.members = {each.member_id: each for each in self.members.values()}
        self.static_members[group_instance_id] = new_id
        self.pending_syncs.discard(old_id)
        if self.leader == old_id:
            self.leader = new_id
        return member

    def elect_joined_leader(self) -> bool:
        """Replace a leader that has not joined, or a missing one, by a member that has; return False if none has."""
        if self.leader is not None and self.members[self.leader].join_ticket is not None:
            return True
        joined = next((each.member_id for each in self.members.values() if each.join_ticket is not None), None)
        self.leader = joined or self.leader
        return joined is not None

    def begin_generation(self, now_ms: int) -> None:
        """Form the next generation of the present members."""
        self.generation += 1
        self.protocol = self.choose_protocol() if self.members else None
        self.subscribed_topics = self._find_subscribed_topics()
        self.pending_syncs.clear()
        self.move(GroupEvent.MEMBERS_JOINED if self.members else GroupEvent.NOBODY_JOINED, now_ms)

    def _find_subscribed_topics(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL or (self.members and self.protocol is None):
            return None
        try:
            subscriptions = [_read_topics(member.metadata_for(self.protocol)) for member in self.members.values()]
        except (ValueError, struct.error):
            return None  # the metadata is not a valid consumer subscription
        return frozenset().union(*subscriptions)

    # The log

    def snapshot(self, assignments: Mapping[str, bytes] | None = None) -> CoordinatorRecord:
        """Return the record of the group, with its present assignments or these, by member id (missing: empty)."""
        members = tuple(
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout_ms,
                subscription=member.metadata_for(self.protocol),
                assignment=member.assignment if assignments is None else assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        )
        value = GroupValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp_ms=self.state_timestamp_ms,
            members=members,
        )
        return CoordinatorRecord(GroupKey(group_id=self.group_id), value)

    def restore(self, value: GroupValue) -> None:
        """Set the group's state from a record. Members of the same generation keep data that the record lacks."""
        if self.state is PREPARING_REBALANCE:
            return
        if value.generation != self.generation:
            self.members = {}  # members of an older generation: they may have joined with other data since
        is_awaited = self.state is AWAITING_SYNC
        self.state = next_state(self.state, GroupEvent.ASSIGNED) if is_awaited else STABLE if value.members else EMPTY
        self.state_timestamp_ms = value.current_state_timestamp_ms
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol
        self.generation = value.generation
        self.leader = value.leader
        self._common = self._metadata_bytes = None
        self.members = {each.member_id: self._restore_member(each, value.protocol) for each in value.members}
        self.static_members = {
            each.group_instance_id: each.member_id for each in value.members if each.group_instance_id is not None
        }
        self.subscribed_topics = self._find_subscribed_topics()

    def _restore_member(self, kept: MemberMetadata, protocol: str | None) -> ClassicMember:
        member = self.members.get(kept.member_id)
        if member is None:
            return ClassicMember(
                member_id=kept.member_id,
                group_instance_id=kept.group_instance_id,
                client_id=kept.client_id,
                client_host=kept.client_host,
                session_timeout_ms=kept.session_timeout_ms,
                rebalance_timeout_ms=max(kept.rebalance_timeout_ms, 0) or kept.session_timeout_ms,
                protocols=((protocol or "", kept.subscription),),
                assignment=kept.assignment,
            )
        member.assignment = kept.assignment
        return member


def metadata_bytes(protocols: Protocols) -> int:
    """Return the bytes of a member's metadata, for all of its protocols."""
    return sum(len(metadata) for _, metadata in protocols)


def _read_topics(metadata: bytes) -> Iterable[str]:
    """Return the topics of a consumer's subscription (ConsumerProtocolSubscription); later versions only append."""
    version = int.from_bytes(metadata[:2], "big", signed=True)
    known = min(version, SUBSCRIPTION.versions)
    _, found = read_value(known.to_bytes(2, "big", signed=True) + metadata[2:], SUBSCRIPTION)
    return found["topics"] or ()


def _deleted_group(group_id: str) -> CoordinatorNotAvailable:
    return CoordinatorNotAvailable(f"group {group_id!r} was deleted: look for its coordinator again")
