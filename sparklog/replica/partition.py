"""One partition as its replica on this broker knows it: leader, ISR, log end offset and high watermark.

Pure: each event is a method call, which returns the effects of the event. No file, no clock, no waiting.

    log end offset (LEO)      the offset that the next record will get
    high watermark (HW)       records below it are committed: the whole ISR has them, and only they are read
    in-sync replicas (ISR)    as stored in the cluster store. The leader changes them there by compare and set, one
                              change at a time; the change is pending until the leader knows its outcome
    maximal ISR               the ISR and the replicas that join it by a pending change

    role        LEADER      takes records. Assigned by a LeaderAndIsr with a new leader epoch
                FOLLOWER    copies the leader's log, or waits while there is no leader
                NONE        must not serve: no role was assigned yet, or the replica was removed

The leader's rules:

- HW = the lowest LEO in the maximal ISR. With flush.messages, the leader's own log counts only as far as it is flushed:
  a power cut would otherwise lose records that consumers have seen. (Followers flush before they fetch again.)
- A replica that is pending to leave still counts for the HW, as the store may refuse the change. A replica that is
  pending to join counts already, and so does a caught-up follower outside the ISR. Otherwise a leader alone in the ISR
  would always be ahead of a returning follower, which could never join. HW never moves back under one leader.
- A new leader epoch resets the state of all followers: HW stays until every ISR member has fetched in that epoch.
- A follower leaves once it has not reached the log's end for replica.lag.time.max.ms. It may join when its LEO has
  reached the HW and the start of the leader epoch: until then its log may diverge from the leader's. Its log must also
  start at or after the leader's log start offset.
- A change with an unknown outcome stays pending: the write may or may not have happened. A later state of the
  partition, from the store or the controller, resolves it.
- acks=all is refused with fewer ISR members than min.insync.replicas, before the append and when HW has passed. Both
  checks use the ISR in the store: a replica that is pending to join does not count. (Apache Kafka counts the maximal
  ISR after the append, which may promise copies that a later leader need not have.)

A follower's HW is the leader's, up to the follower's own log end; a truncation lowers it.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple
from uuid import UUID

from sparklog.base.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    UnknownLeaderEpoch,
)
from sparklog.base.ids import TopicPartition
from sparklog.replica.messages import NO_BROKER_EPOCH, NO_LEADER, AlterIsr, AlterIsrResult, LeaderAndIsrPartitionState

ALL_IN_SYNC = -1  # acks: answered when the whole in-sync set has the records
NO_EPOCH = -1
NO_TOPIC = UUID(int=0)
"""Before the first state of the controller."""
UNKNOWN = -1  # an offset that has not been reported yet
NEVER = -(1 << 62)  # a time before all others


class Role(Enum):
    LEADER = "leader"
    FOLLOWER = "follower"
    NONE = "none"


class Effects(NamedTuple):
    """Actions that follow from an event; the caller carries them out."""

    has_committed: bool = False
    """The high watermark has moved: check the operations that wait for it."""
    alter: AlterIsr | None = None
    """ISR change to write to the store; pass the outcome to `isr_altered` or `isr_refused`."""


NOTHING = Effects()
COMMITTED = Effects(has_committed=True)


class FetchClock:
    """The time of the last fetch of a follower's session, in milliseconds. Its quiet partitions share it."""

    __slots__ = ("fetched_ms",)

    def __init__(self) -> None:
        self.fetched_ms = NEVER

    def fetched(self, now_ms: int) -> None:
        """Record a fetch."""
        self.fetched_ms = now_ms


class Follower:
    """The leader's state of one follower in the current leader epoch.

    The partition is quiet for a follower in the ISR that has the leader's whole log, and that has been sent all news.
    Its fetches then cost nothing: their times are in a clock, from which they are taken over when they matter.
    """

    __slots__ = (
        "_clock", "broker_epoch", "broker_id", "caught_up_ms", "fetched_ms", "is_caught_up", "leader_end_offset",
        "log_end_offset", "log_start_offset",
    )  # fmt: skip

    def __init__(self, broker_id: int, caught_up_ms: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = NO_BROKER_EPOCH
        self.log_end_offset = UNKNOWN
        self.log_start_offset = UNKNOWN
        self.caught_up_ms = caught_up_ms
        """Latest time at which the follower is known to have had the leader's whole log."""
        self.is_caught_up = False
        """Whether `caught_up_ms` is within the maximum lag (replica.lag.time.max.ms)."""
        self.fetched_ms = NEVER
        self.leader_end_offset = UNKNOWN
        """The leader's log end offset at the follower's last fetch."""
        self._clock: FetchClock | None = None
        """None: the partition is not quiet."""

    def become_quiet(self, clock: FetchClock) -> None:
        """Count the fetches in `clock`, until the next `fetched` or `end_quiet`."""
        self._clock = clock

    def count_quiet(self) -> None:
        """Record the fetches since the partition became quiet."""
        if self._clock and self._clock.fetched_ms > self.fetched_ms:
            self.caught_up_ms = self.fetched_ms = self._clock.fetched_ms
            self.is_caught_up = True

    def end_quiet(self) -> None:
        """Record the fetches since the partition became quiet, and no later ones."""
        self.count_quiet()
        self._clock = None

    def fetched(
        self, offset: int, log_start_offset: int, broker_epoch: int, leader_end_offset: int, now_ms: int
    ) -> None:
        """Record a fetch from `offset` on: up to there, the follower has the leader's log.

        leader_end_offset: of the leader's log at this fetch. A follower that reaches the log end of its former
        fetch had caught up at that time (org.apache.kafka.server.replica.Replica).
        """
        self._clock = None
        if offset >= leader_end_offset:
            self.caught_up_ms, self.is_caught_up = now_ms, True
        elif self.log_end_offset >= 0 and offset >= self.leader_end_offset:
            # The follower has reached the log end of its previous fetch; under load it never reaches the current one.
            self.caught_up_ms, self.is_caught_up = self.fetched_ms, True
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self.fetched_ms = now_ms
        self.leader_end_offset = leader_end_offset


class Partition:
    """State of one partition as one replica knows it."""

    __slots__ = (
        "_counted", "_doubtful", "adding", "broker_id", "controller_epoch", "counted_end_offset", "followers",
        "high_watermark", "in_sync_replicas", "is_leader", "leader", "leader_epoch", "leader_epoch_start", "led_since",
        "log_end_offset", "name", "partition_epoch", "pending", "replicas", "role", "topic_id",
    )  # fmt: skip

    def __init__(self, name: TopicPartition, *, broker_id: int, log_end_offset: int, high_watermark: int) -> None:
        """high_watermark: the last known one; lowered to `log_end_offset` if that is smaller."""
        self.name = name
        self.broker_id = broker_id
        self.role = Role.NONE
        self.is_leader = False
        self.leader = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.leader_epoch_start = UNKNOWN
        """The leader's log end offset when its epoch began."""
        self.led_since = NO_EPOCH
        """Epoch in which this broker became the leader, and has stayed so since; NO_EPOCH: it does not lead."""
        self.controller_epoch = NO_EPOCH
        self.partition_epoch = NO_EPOCH
        self.topic_id = NO_TOPIC
        self.replicas: tuple[int, ...] = ()
        self.adding: tuple[int, ...] = ()
        self.in_sync_replicas: tuple[int, ...] = ()
        self.pending: AlterIsr | None = None
        self.followers: dict[int, Follower] = {}
        self.log_end_offset = log_end_offset
        self.counted_end_offset = log_end_offset
        """Leader only: the offset up to which its own log counts for the high watermark."""
        self.high_watermark = min(high_watermark, log_end_offset)
        self._counted: tuple[Follower, ...] = ()
        """Followers whose log end offsets limit the high watermark."""
        self._doubtful: tuple[int, ...] = ()
        """Brokers that an abandoned ISR change may have put into the ISR in the store."""

    # State

    @property
    def maximal_isr(self) -> frozenset[int]:
        """The ISR, and all brokers that pending or abandoned changes may have put into it in the store."""
        return frozenset((*self.in_sync_replicas, *(self.pending.isr if self.pending else ()), *self._doubtful))

    @property
    def is_under_replicated(self) -> bool:
        """Whether this broker leads it with fewer ISR members than replicas, not counting those being added."""
        return self.is_leader and len(self.in_sync_replicas) < len(self.replicas) - len(self.adding)

    def check_leader_epoch(self, known: int | None) -> None:
        """Check the leader epoch that a client's request names (KIP-320); None: the request names none.

        Raises FencedLeaderEpoch if the client's epoch is older, UnknownLeaderEpoch if it is newer than this broker's.
        """
        if known is None or known == self.leader_epoch:
            return
        text = f"{self.name}: the request is for leader epoch {known}, the leader's is {self.leader_epoch}"
        raise FencedLeaderEpoch(text) if known < self.leader_epoch else UnknownLeaderEpoch(text)

    def check_leader(self) -> None:
        """Raise NotLeaderOrFollower if this broker does not lead the partition."""
        if not self.is_leader:
            raise NotLeaderOrFollower(f"{self.name}: broker {self.broker_id} does not lead it, but {self.leader}")

    def check_in_sync(self, acks: int, min_insync_replicas: int) -> None:
        """Raise NotEnoughReplicas for acks=all if the ISR has fewer than `min_insync_replicas` members."""
        if acks == ALL_IN_SYNC and len(self.in_sync_replicas) < min_insync_replicas:
            raise NotEnoughReplicas(self._too_few(min_insync_replicas))

    def check_offset_is_known(self) -> None:
        """Raise OffsetNotAvailable while the high watermark is below the start of the leader epoch (KIP-207).

        A new leader does not know yet how much its predecessor had committed, and would report a high watermark below
        one that clients have already seen.
        """
        if self.high_watermark < self.leader_epoch_start:
            raise OffsetNotAvailable(
                f"{self.name}: the high watermark {self.high_watermark} is below the start of the leader epoch, "
                f"{self.leader_epoch_start}: the in-sync replicas have not fetched yet"
            )

    def _too_few(self, min_insync_replicas: int) -> str:
        return (
            f"{self.name}: {len(self.in_sync_replicas)} replicas are in sync, "
            f"min.insync.replicas is {min_insync_replicas}"
        )

    def is_committed(self, last_offset: int) -> bool:
        """Return whether the record at `last_offset` is below the high watermark."""
        return last_offset < self.high_watermark

    def is_replicated(self, last_offset: int, led_since: int, min_insync_replicas: int) -> bool:
        """Return whether a record can be acknowledged that was appended with acks=all at this `led_since`.

        Raises NotLeaderOrFollower if this broker has lost the leadership since: the record may be lost.
        Raises NotEnoughReplicasAfterAppend if the record is committed, but the ISR has become too small.
        """
        if self.led_since != led_since or not self.is_leader:
            raise NotLeaderOrFollower(
                f"{self.name}: broker {self.broker_id} lost the leadership before offset {last_offset} was committed"
            )
        if last_offset >= self.high_watermark:
            return False
        if len(self.in_sync_replicas) < min_insync_replicas:
            raise NotEnoughReplicasAfterAppend(self._too_few(min_insync_replicas))
        return True

    def low_watermark(self, log_start_offset: int, is_alive: frozenset[int] | set[int]) -> int:
        """Return the lowest log start offset of the live replicas; `log_start_offset` is the leader's own."""
        others = (each.log_start_offset for each in self.followers.values() if each.broker_id in is_alive)
        return min((log_start_offset, *others))

    # Changes of role

    def become_leader(
        self,
        state: LeaderAndIsrPartitionState,
        controller_epoch: int,
        *,
        log_end_offset: int,
        counted_end_offset: int | None = None,
        now_ms: int,
    ) -> Effects:
        """Become the leader, and return the effects. A leader of the same epoch takes over a newer ISR and replicas.

        counted_end_offset: the offset up to which the log counts for the high watermark; None: all of it.
        """
        if self.is_leader and state.leader_epoch == self.leader_epoch:
            if state.partition_epoch <= self.partition_epoch:
                return NOTHING
            self._take_over(state, controller_epoch)
            self._follow_up(now_ms)
            return self._advance()
        self._take_over(state, controller_epoch)
        if not self.is_leader:
            self.led_since = state.leader_epoch
        self.role, self.is_leader = Role.LEADER, True
        self.leader, self.leader_epoch = self.broker_id, state.leader_epoch
        self.log_end_offset = self.leader_epoch_start = log_end_offset
        self.counted_end_offset = log_end_offset if counted_end_offset is None else counted_end_offset
        self.high_watermark = min(self.high_watermark, log_end_offset)  # or an append would seem committed
        self.followers.clear()
        self._follow_up(now_ms)
        return self._advance()

    def become_follower(self, state: LeaderAndIsrPartitionState, controller_epoch: int) -> bool:
        """Become a follower of `state.leader`; return whether leader or epoch is new, so that fetching must restart."""
        is_new = self.role is not Role.FOLLOWER or (self.leader, self.leader_epoch) != (
            state.leader,
            state.leader_epoch,
        )
        if not is_new and state.partition_epoch < self.partition_epoch:
            return False
        self._take_over(state, controller_epoch)
        self._resign(Role.FOLLOWER)
        self.leader, self.leader_epoch = state.leader, state.leader_epoch
        return is_new

    def stop(self, leader_epoch: int) -> None:
        """Stop following or leading until a newer state arrives."""
        self._resign(Role.FOLLOWER)
        self.leader, self.leader_epoch = NO_LEADER, max(leader_epoch, self.leader_epoch)

    def leave(self) -> None:
        """Give up the replica: it was removed from this broker, or its disk has failed."""
        self._resign(Role.NONE)
        self.leader = NO_LEADER

    def _resign(self, role: Role) -> None:
        self.role, self.is_leader = role, False
        self.leader_epoch_start, self.led_since = UNKNOWN, NO_EPOCH
        self.pending, self._doubtful = None, ()
        self.followers.clear()
        self._counted = ()

    def _take_over(self, state: LeaderAndIsrPartitionState, controller_epoch: int) -> None:
        self.topic_id, self.replicas, self.adding = state.topic_id, state.replicas, state.adding
        self.controller_epoch = controller_epoch
        self._set_isr(state.isr, state.partition_epoch)

    def _set_isr(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        """Set the ISR as stored. A broker that left it may be dead: it does not count until it fetches again."""
        for broker_id in self.in_sync_replicas:
            if broker_id not in isr and (follower := self.followers.get(broker_id)):
                follower.end_quiet()
                follower.is_caught_up = False
        self.in_sync_replicas, self.partition_epoch = isr, partition_epoch
        self.pending, self._doubtful = None, ()

    def _follow_up(self, now_ms: int) -> None:
        """Keep state for exactly the other replicas; a new one starts with unknown offsets."""
        for broker_id in tuple(self.followers):
            if broker_id not in self.replicas:
                del self.followers[broker_id]
        for broker_id in (*self.replicas, *self.in_sync_replicas):
            if broker_id != self.broker_id and broker_id not in self.followers:
                self.followers[broker_id] = Follower(broker_id, now_ms if broker_id in self.in_sync_replicas else NEVER)
        self._choose_counted()

    # Events at the leader

    def log_appended(self, log_end_offset: int, *, counts: bool = True) -> bool:
        """Record that the leader's own log has grown; return whether the high watermark has moved.

        counts: False if the log must be flushed first; call `log_counts` after the flush.
        """
        for follower in self.followers.values():
            follower.end_quiet()
        self.log_end_offset = log_end_offset
        if not counts:
            return False
        self.counted_end_offset = log_end_offset
        if self._counted or log_end_offset <= self.high_watermark:
            return False  # followers that count are at the old end at best
        self.high_watermark = log_end_offset
        return True

    def log_counts(self, end_offset: int) -> bool:
        """Record that the leader's own log counts up to `end_offset`; return whether the high watermark has moved."""
        if end_offset <= self.counted_end_offset:
            return False
        self.counted_end_offset = end_offset
        return self._advance().has_committed

    def follower_fetched(
        self,
        broker_id: int,
        *,
        broker_epoch: int,
        fetch_offset: int,
        log_start_offset: int,
        now_ms: int,
        leader_log_start_offset: int = 0,
    ) -> Effects:
        """Record a fetch of a live follower, in its current broker epoch and the current leader epoch.

        Return the effects. The follower's log must match the leader's up to `fetch_offset`. The follower joins the ISR
        only once its log start offset has reached the leader's: otherwise it could bring back deleted records as a
        leader. Raises NotLeaderOrFollower if `broker_id` is not a replica.
        """
        follower = self.followers.get(broker_id)
        if follower is None:
            raise NotLeaderOrFollower(f"{self.name}: broker {broker_id} is none of its replicas {self.replicas}")
        was_caught_up, before = follower.is_caught_up, follower.log_end_offset
        follower.fetched(fetch_offset, log_start_offset, broker_epoch, self.log_end_offset, now_ms)
        if follower.is_caught_up and not was_caught_up:
            self._choose_counted()
        alter = None
        is_trimmed = log_start_offset >= leader_log_start_offset
        if self.pending is None and broker_id not in self.in_sync_replicas and is_trimmed and self._may_join(follower):
            alter = self._begin_alter((*self.in_sync_replicas, broker_id), {broker_id: broker_epoch})
        if alter is None and fetch_offset == before:
            return NOTHING
        return self._advance(alter)

    def become_quiet(self, broker_id: int, broker_epoch: int, clock: FetchClock) -> bool:
        """Count a follower's fetches in `clock` from now on, if it is in the ISR and has the whole log; return whether.

        Call it after `follower_fetched` in the same fetch. An append, or another fetch that names the partition, ends
        that; so does `end_quiet`, if the session is to fetch it no longer.
        """
        follower = self.followers.get(broker_id)
        if (
            follower is None
            or follower.broker_epoch != broker_epoch
            or follower.log_end_offset != self.log_end_offset
            or broker_id not in self.in_sync_replicas
        ):
            return False
        follower.become_quiet(clock)
        return True

    def end_quiet(self, broker_id: int) -> None:
        """Count no later fetches of a follower for which the partition may be quiet."""
        if follower := self.followers.get(broker_id):
            follower.end_quiet()

    def shrink_isr(self, now_ms: int, max_lag_ms: int) -> Effects:
        """Stop counting followers that have lagged for `max_lag_ms`, and remove them from the ISR; return the effects.

        Changes nothing unless this broker leads.
        """
        if not self.is_leader:
            return NOTHING
        oldest_ms = now_ms - max_lag_ms
        for follower in self.followers.values():
            follower.count_quiet()
            if follower.is_caught_up and follower.caught_up_ms < oldest_ms:
                follower.is_caught_up = False
        self._choose_counted()
        lagging = [each for each in self.in_sync_replicas if self._is_lagging(each, oldest_ms)]
        alter = None
        if lagging and self.pending is None:
            alter = self._begin_alter(tuple(each for each in self.in_sync_replicas if each not in lagging), {})
        return self._advance(alter)

    def _is_lagging(self, broker_id: int, oldest_ms: int) -> bool:
        if broker_id == self.broker_id:
            return False
        follower = self.followers[broker_id]
        return follower.log_end_offset != self.log_end_offset and follower.caught_up_ms < oldest_ms

    def isr_altered(self, change: AlterIsr, altered: AlterIsrResult, now_ms: int) -> Effects:
        """Take over the store's content after `change` was written, and return the effects.

        Changes nothing if `change` is no longer pending.
        """
        if self.pending is not change:
            return NOTHING
        self._set_isr(altered.isr, altered.partition_epoch)
        self._follow_up(now_ms)
        return self._advance()

    def isr_refused(self, change: AlterIsr) -> Effects:
        """Undo `change`, because a joining broker has restarted since it reached the log's end. Return the effects.

        An earlier try may have been written nevertheless, so the current ISR is written to the store again. The joining
        brokers count for the high watermark until the outcome of that write is known.
        """
        if self.pending is not change:
            return NOTHING
        self._doubtful = (*self._doubtful, *change.isr)
        for broker_id in change.joining:
            self.followers[broker_id].is_caught_up = False  # it had caught up before its restart
        return Effects(alter=self._begin_alter(self.in_sync_replicas, {}))

    def _may_join(self, follower: Follower) -> bool:
        return follower.log_end_offset >= max(self.high_watermark, self.leader_epoch_start)

    def _begin_alter(self, isr: tuple[int, ...], joining: dict[int, int]) -> AlterIsr:
        self.pending = AlterIsr(
            name=self.name,
            topic_id=self.topic_id,
            leader=self.broker_id,
            leader_epoch=self.leader_epoch,
            controller_epoch=self.controller_epoch,
            isr=isr,
            partition_epoch=self.partition_epoch,
            joining=joining,
        )
        self._choose_counted()
        return self.pending

    def _choose_counted(self) -> None:
        """Determine the followers whose log end offsets count for the high watermark."""
        isr = self.maximal_isr
        self._counted = tuple(each for each in self.followers.values() if each.is_caught_up or each.broker_id in isr)

    def _advance(self, alter: AlterIsr | None = None) -> Effects:
        lowest = self.counted_end_offset
        for follower in self._counted:
            lowest = min(lowest, follower.log_end_offset)
        if lowest <= self.high_watermark:
            return Effects(alter=alter) if alter else NOTHING
        self.high_watermark = lowest
        return Effects(has_committed=True, alter=alter) if alter else COMMITTED

    # Events at a follower

    def followed(self, log_end_offset: int, leader_high_watermark: int) -> bool:
        """Record the log end and the leader's high watermark; return whether the own one has moved."""
        self.log_end_offset = log_end_offset
        committed = min(leader_high_watermark, log_end_offset)
        if committed <= self.high_watermark:
            return False  # a new leader may know of a lower one than its predecessor
        self.high_watermark = committed
        return True

    def truncated(self, log_end_offset: int) -> None:
        """Record that the log was truncated to `log_end_offset`."""
        self.log_end_offset = log_end_offset
        self.high_watermark = min(self.high_watermark, log_end_offset)
