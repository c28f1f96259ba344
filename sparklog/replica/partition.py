"""One partition as a replica of it knows it: who leads, who is in sync, how far the log goes, how much is committed.

Pure: events come in as method calls with what happened, and the answer says what follows from it. No file, no clock, no
waiting.

    log end offset (LEO)      the offset that the next record will get
    high watermark (HW)       records below it are committed: the whole in-sync set has them, and only they are read
    in-sync replicas (ISR)    as the cluster store has them. A leader changes them there by compare and set, one change
                              at a time; until it knows how that ended, the change is pending
    maximal ISR               the ISR, and who is to join it by a pending change

    role        LEADER      takes records. Made by a LeaderAndIsr with a leader epoch that it did not know
                FOLLOWER    copies the leader's log, or waits where nobody leads
                NONE        it may not serve: nobody has said yet what it is, or it was taken away

The leader's rules:

- HW = the lowest LEO in the maximal ISR. The leader's own counts as far as no record must be flushed first: where
  flush.messages asks for that, a power cut would take what was shown. (Followers flush before they fetch again.)
- Who is pending to leave still counts for the HW, as the store may say no; who is pending to join counts already. A
  follower outside that is caught up counts too, though it need not: else a leader alone would always be ahead of a
  follower that has come back, which could never join. HW never moves back while the leader stays.
- A new leader epoch resets what is known of followers: HW stays until every one in the ISR has fetched in that epoch.
- A follower leaves once it has not been at the log's end for replica.lag.time.max.ms. It may join when its LEO has
  reached the HW and the start of the leader epoch: before that its log may hold what the leader's does not. Its log
  starts where the leader's does by then.
- What has an unknown end is pending: a write that may have been done or not. A later state of the partition, from the
  store or the controller, ends it.
- acks=all is refused with fewer in the ISR than min.insync.replicas, before the append and when HW has passed. There,
  the ISR is the one in the store: who is pending to join does not make up the number. (Apache Kafka counts the maximal
  ISR after the append, which may promise copies that no later leader must have.)

A follower's HW is the leader's, as far as its own log goes; a truncation lowers it.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from sparklog.base.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    UnknownLeaderEpoch,
)
from sparklog.base.ids import TopicPartition
from sparklog.replica.messages import NO_BROKER_EPOCH, NO_LEADER, AlterIsr, IsrAltered, PartitionState

ALL_IN_SYNC = -1  # acks: answered when the whole in-sync set has the records
NO_EPOCH = -1
UNKNOWN = -1  # an offset of which nothing has been heard
NEVER = -(1 << 62)  # a time before all others


class Role(Enum):
    LEADER = "leader"
    FOLLOWER = "follower"
    NONE = "none"


class Effects(NamedTuple):
    """What follows from an event, for the shell to do."""

    has_committed: bool = False
    """The high watermark has moved: look at who waits for it."""
    alter: AlterIsr | None = None
    """To be written to the store; `isr_altered` or `isr_refused` takes the answer."""


NOTHING = Effects()
COMMITTED = Effects(has_committed=True)


class Follower:
    """What the leader knows of one of the others, in this leader epoch."""

    __slots__ = (
        "broker_epoch", "broker_id", "caught_up_ms", "fetched_ms", "is_caught_up", "leader_end_offset",
        "log_end_offset", "log_start_offset",
    )  # fmt: skip

    def __init__(self, broker_id: int, caught_up_ms: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = NO_BROKER_EPOCH
        self.log_end_offset = UNKNOWN
        self.log_start_offset = UNKNOWN
        self.caught_up_ms = caught_up_ms
        """The latest time of which it is known that the follower had all that the leader had then."""
        self.is_caught_up = False
        """That time is no longer ago than a follower may lag."""
        self.fetched_ms = NEVER
        self.leader_end_offset = UNKNOWN
        """The leader's, when the follower last fetched."""

    def fetched(
        self, offset: int, log_start_offset: int, broker_epoch: int, leader_end_offset: int, now_ms: int
    ) -> None:
        if offset >= leader_end_offset:
            self.caught_up_ms, self.is_caught_up = now_ms, True
        elif self.log_end_offset >= 0 and offset >= self.leader_end_offset:
            # It has what there was when it fetched before: so it is under steady load, where it never is at the end.
            self.caught_up_ms, self.is_caught_up = self.fetched_ms, True
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self.fetched_ms = now_ms
        self.leader_end_offset = leader_end_offset


class Partition:
    """One replica's knowledge of its partition."""

    __slots__ = (
        "_counted", "_doubtful", "adding", "broker_id", "controller_epoch", "counted_end_offset", "followers",
        "high_watermark", "in_sync_replicas", "is_leader", "leader", "leader_epoch", "leader_epoch_start", "led_since",
        "log_end_offset", "name", "partition_epoch", "pending", "replicas", "role",
    )  # fmt: skip

    def __init__(self, name: TopicPartition, *, broker_id: int, log_end_offset: int, high_watermark: int) -> None:
        """high_watermark: as far as it is known from before; a log that ends below it lowers it."""
        self.name = name
        self.broker_id = broker_id
        self.role = Role.NONE
        self.is_leader = False
        self.leader = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.leader_epoch_start = UNKNOWN
        """The leader's log end when its epoch began."""
        self.led_since = NO_EPOCH
        """The leader epoch in which this broker became the leader, and has stayed it since; NO_EPOCH: it is not."""
        self.controller_epoch = NO_EPOCH
        self.partition_epoch = NO_EPOCH
        self.replicas: tuple[int, ...] = ()
        self.adding: tuple[int, ...] = ()
        self.in_sync_replicas: tuple[int, ...] = ()
        self.pending: AlterIsr | None = None
        self.followers: dict[int, Follower] = {}
        self.log_end_offset = log_end_offset
        self.counted_end_offset = log_end_offset
        """At the leader: up to where its own log counts for the high watermark."""
        self.high_watermark = min(high_watermark, log_end_offset)
        self._counted: tuple[Follower, ...] = ()
        """Those whose log ends the high watermark may not pass."""
        self._doubtful: tuple[int, ...] = ()
        """Who may be in the ISR in the store by a change that was then given up."""

    # What it is

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction has ended: the high watermark, as there are no transactions."""
        return self.high_watermark

    @property
    def maximal_isr(self) -> frozenset[int]:
        return frozenset((*self.in_sync_replicas, *(self.pending.isr if self.pending else ()), *self._doubtful))

    @property
    def is_under_replicated(self) -> bool:
        """Whether it is led here with fewer in sync than it has replicas, those that are being added left out."""
        return self.is_leader and len(self.in_sync_replicas) < len(self.replicas) - len(self.adding)

    def check_leader_epoch(self, known: int | None) -> None:
        """Refuse a client that takes another epoch for the leader's; None: it makes no claim (KIP-320).

        Raises FencedLeaderEpoch where the client is behind, UnknownLeaderEpoch where this broker is.
        """
        if known is None or known == self.leader_epoch:
            return
        text = f"{self.name}: the request is for leader epoch {known}, the leader's is {self.leader_epoch}"
        raise FencedLeaderEpoch(text) if known < self.leader_epoch else UnknownLeaderEpoch(text)

    def check_leader(self) -> None:
        """Raises NotLeaderOrFollower."""
        if not self.is_leader:
            raise NotLeaderOrFollower(f"{self.name}: broker {self.broker_id} does not lead it, but {self.leader}")

    def check_in_sync(self, acks: int, min_insync_replicas: int) -> None:
        """Raises NotEnoughReplicas where acks=all cannot mean what the topic wants it to mean."""
        if acks == ALL_IN_SYNC and len(self.in_sync_replicas) < min_insync_replicas:
            raise NotEnoughReplicas(self._too_few(min_insync_replicas))

    def check_offset_is_known(self) -> None:
        """Raises OffsetNotAvailable as long as a new leader does not know how much its predecessor had committed, and
        would tell a high watermark below one that was told before (KIP-207)."""
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
        return last_offset < self.high_watermark

    def is_replicated(self, last_offset: int, led_since: int, min_insync_replicas: int) -> bool:
        """Whether a record that was appended with acks=all, while `led_since` was what it is, can be acknowledged.

        Raises NotLeaderOrFollower where this broker has lost the leadership since: the record may be gone, or will be.
        Raises NotEnoughReplicasAfterAppend where it is committed, but by too few.
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
        """The lowest log start of the replicas that are alive; `log_start_offset` is the leader's own."""
        others = (each.log_start_offset for each in self.followers.values() if each.broker_id in is_alive)
        return min((log_start_offset, *others))

    # What it becomes

    def become_leader(
        self,
        state: PartitionState,
        controller_epoch: int,
        *,
        log_end_offset: int,
        counted_end_offset: int | None = None,
        now_ms: int,
    ) -> Effects:
        """Lead from now on; with the epoch that it leads in already: take over ISR and replicas if they are newer.

        counted_end_offset: where less than all of the log counts as yet.
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
        self.high_watermark = min(self.high_watermark, log_end_offset)  # or an append below would pass for safe
        self.followers.clear()
        self._follow_up(now_ms)
        return self._advance()

    def become_follower(self, state: PartitionState, controller_epoch: int) -> bool:
        """Follow `state.leader` from now on. Whether that is new: fetching must begin anew then."""
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
        """Follow or lead no more, until there is a newer state."""
        self._resign(Role.FOLLOWER)
        self.leader, self.leader_epoch = NO_LEADER, max(leader_epoch, self.leader_epoch)

    def leave(self) -> None:
        """The partition is taken away from this broker, or its disk has failed."""
        self._resign(Role.NONE)
        self.leader = NO_LEADER

    def _resign(self, role: Role) -> None:
        self.role, self.is_leader = role, False
        self.leader_epoch_start, self.led_since = UNKNOWN, NO_EPOCH
        self.pending, self._doubtful = None, ()
        self.followers.clear()
        self._counted = ()

    def _take_over(self, state: PartitionState, controller_epoch: int) -> None:
        self.replicas, self.adding = state.replicas, state.adding
        self.controller_epoch = controller_epoch
        self._set_isr(state.isr, state.partition_epoch)

    def _set_isr(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        """As it is in the store. Who has left it is not waited for, until it fetches again: it may be dead."""
        for broker_id in self.in_sync_replicas:
            if broker_id not in isr and (follower := self.followers.get(broker_id)):
                follower.is_caught_up = False
        self.in_sync_replicas, self.partition_epoch = isr, partition_epoch
        self.pending, self._doubtful = None, ()

    def _follow_up(self, now_ms: int) -> None:
        """Know of those who are replicas, and of no others; of who is new, nothing."""
        for broker_id in tuple(self.followers):
            if broker_id not in self.replicas:
                del self.followers[broker_id]
        for broker_id in (*self.replicas, *self.in_sync_replicas):
            if broker_id != self.broker_id and broker_id not in self.followers:
                self.followers[broker_id] = Follower(broker_id, now_ms if broker_id in self.in_sync_replicas else NEVER)
        self._count()

    # What happens at the leader

    def log_appended(self, log_end_offset: int, *, counts: bool = True) -> bool:
        """The leader's own log has grown. True: the high watermark has moved, so look at who waits for it.

        counts: not where it must be flushed first; `log_counts` says when it is.
        """
        self.log_end_offset = log_end_offset
        if not counts:
            return False
        self.counted_end_offset = log_end_offset
        if self._counted or log_end_offset <= self.high_watermark:
            return False  # a follower that counts is at the old end at best, and so is the high watermark
        self.high_watermark = log_end_offset
        return True

    def log_counts(self, end_offset: int) -> bool:
        """The leader's own log is on the disk up to there, where it must be. Whether the high watermark has moved."""
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
        """A follower that is alive, in this life of it, asks in the current leader epoch for what comes after its log
        end, and its log is as the leader's up to there.

        It joins the ISR only once its log starts where the leader's does: as a leader it would bring back what has
        been deleted. Raises NotLeaderOrFollower where it is none of the replicas.
        """
        follower = self.followers.get(broker_id)
        if follower is None:
            raise NotLeaderOrFollower(f"{self.name}: broker {broker_id} is none of its replicas {self.replicas}")
        was_caught_up, before = follower.is_caught_up, follower.log_end_offset
        follower.fetched(fetch_offset, log_start_offset, broker_epoch, self.log_end_offset, now_ms)
        if follower.is_caught_up and not was_caught_up:
            self._count()
        alter = None
        is_trimmed = log_start_offset >= leader_log_start_offset
        if self.pending is None and broker_id not in self.in_sync_replicas and is_trimmed and self._may_join(follower):
            alter = self._alter((*self.in_sync_replicas, broker_id), {broker_id: broker_epoch})
        if alter is None and fetch_offset == before:
            return NOTHING
        return self._advance(alter)

    def look_for_laggards(self, now_ms: int, max_lag_ms: int) -> Effects:
        """Time has passed: who has not been at the log's end for `max_lag_ms` counts no more, and leaves the ISR."""
        if not self.is_leader:
            return NOTHING
        oldest_ms = now_ms - max_lag_ms
        for follower in self.followers.values():
            if follower.is_caught_up and follower.caught_up_ms < oldest_ms:
                follower.is_caught_up = False
        self._count()
        lagging = [each for each in self.in_sync_replicas if self._is_lagging(each, oldest_ms)]
        alter = None
        if lagging and self.pending is None:
            alter = self._alter(tuple(each for each in self.in_sync_replicas if each not in lagging), {})
        return self._advance(alter)

    def _is_lagging(self, broker_id: int, oldest_ms: int) -> bool:
        if broker_id == self.broker_id:
            return False
        follower = self.followers[broker_id]
        return follower.log_end_offset != self.log_end_offset and follower.caught_up_ms < oldest_ms

    def isr_altered(self, change: AlterIsr, altered: IsrAltered, now_ms: int) -> Effects:
        """What the store says after `change` was to be written. Nothing, where something newer has come meanwhile."""
        if self.pending is not change:
            return NOTHING
        self._set_isr(altered.isr, altered.partition_epoch)
        self._follow_up(now_ms)
        return self._advance()

    def isr_refused(self, change: AlterIsr) -> Effects:
        """Who was to join is not in the life any more in which it was at the log's end.

        An earlier try may have been written all the same, so this is undone in the store: until it is known how that
        ended, who was to join counts.
        """
        if self.pending is not change:
            return NOTHING
        self._doubtful = (*self._doubtful, *change.isr)
        for broker_id in change.joining:
            self.followers[broker_id].is_caught_up = False  # the life that was is over
        return Effects(alter=self._alter(self.in_sync_replicas, {}))

    def _may_join(self, follower: Follower) -> bool:
        return follower.log_end_offset >= max(self.high_watermark, self.leader_epoch_start)

    def _alter(self, isr: tuple[int, ...], joining: dict[int, int]) -> AlterIsr:
        self.pending = AlterIsr(
            name=self.name,
            leader=self.broker_id,
            leader_epoch=self.leader_epoch,
            controller_epoch=self.controller_epoch,
            isr=isr,
            partition_epoch=self.partition_epoch,
            joining=joining,
        )
        self._count()
        return self.pending

    def _count(self) -> None:
        """Find those whose log ends count for the high watermark."""
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

    # What happens at a follower

    def followed(self, log_end_offset: int, leader_high_watermark: int) -> bool:
        """The log has been written up to there, and the leader's high watermark is known. Whether the own has moved."""
        self.log_end_offset = log_end_offset
        committed = min(leader_high_watermark, log_end_offset)
        if committed <= self.high_watermark:
            return False  # a new leader may know of less than its predecessor had told
        self.high_watermark = committed
        return True

    def truncated(self, log_end_offset: int) -> None:
        """The log ends there now."""
        self.log_end_offset = log_end_offset
        self.high_watermark = min(self.high_watermark, log_end_offset)
