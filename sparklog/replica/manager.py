"""The replicas of this broker: carries out the decisions of `Partition` on their logs.

    append             at the leader; operations waiting for records are checked when the high watermark moves
    follower_fetched   at the leader: a follower's fetch may move the high watermark, and the follower may join the ISR
    shrink_isr         at the leader, on a schedule: replicas that lag leave the ISR
    followed           at a follower: its log has taken the leader's response

All methods run on the event loop, except those marked "any thread". Appends and reads are a system call into the page
cache, cheaper than a hand-over to a thread; work that waits for a disk runs in a thread.

The controller decides which partitions are led and followed here: state_changes.py. Changes of the ISR:
isr_changes.py.
"""

from __future__ import annotations

import asyncio
import logging
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct

from sparklog.base.clock import Clock, SystemClock
from sparklog.base.errors import ConnectionLoss, KafkaStorageError, NotLeaderOrFollower, UnknownTopicOrPartition
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.log.epochs import EpochEnd
from sparklog.log.log import Log, LogAppendInfo, LogSlice
from sparklog.log.producers.verifications import Verification
from sparklog.log.segment.transaction_index import AbortedTransaction
from sparklog.records.markers import EndTransactionMarker
from sparklog.records.recompression import Compression, compression_of
from sparklog.replica.isr_changes import IsrChanges, OnIsrChange, WriteIsr, ignore_isr_change
from sparklog.replica.messages import NO_LEADER, AlterIsr, AlterIsrResult
from sparklog.replica.partition import ALL_IN_SYNC, NO_EPOCH, NOTHING, Partition

logger = logging.getLogger(__name__)
OnLeadership = Callable[[TopicPartition, bool, int], None]
"""Arguments: the partition, whether this broker leads it now, the leader epoch."""


class Replica(Struct, kw_only=True):
    """One partition, its log and its topic's configuration."""

    partition: Partition
    log: Log
    config: TopicConfig

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction has ended, up to the high watermark. Any thread."""
        return self.log.last_stable_offset(self.partition.high_watermark)

    def end_offset_for(self, epoch: int) -> EpochEnd:
        """Return where `epoch` ends. The current epoch begins at the log end while it has no records."""
        end_offset = self.log.log_end_offset
        return self.log.epochs.assign(self.partition.leader_epoch, end_offset).end_offset_for(epoch, end_offset)

    def is_replicated(self, last_offset: int, led_since: int) -> bool:
        """Return what `Partition.is_replicated` returns, with the topic's min.insync.replicas; raises as it does."""
        return self.partition.is_replicated(last_offset, led_since, self.config.min_insync_replicas)


class ReplicaManager:
    """The replicas on this broker, online and offline, and the operations on them."""

    def __init__(
        self,
        on_high_watermark: Callable[[TopicPartition], None],
        *,
        broker_id: int = NO_LEADER,
        clock: Clock | None = None,
        max_lag_ms: int = 30_000,
        alter_isr: WriteIsr | None = None,
        broker_epoch_of: Callable[[int], int | None] = lambda _: None,
        exists: Callable[[TopicPartition], bool] = lambda _: False,
        on_log_end: Callable[[TopicPartition], None] = lambda _: None,
        on_replicas: Callable[[TopicPartition], object] = lambda _: None,
        on_isr_change: OnIsrChange = ignore_isr_change,
        on_leadership: OnLeadership = lambda *_: None,
    ) -> None:
        """Create a manager without replicas.

        on_high_watermark: called when operations that wait for the partition must check again: its high watermark,
        leadership or a follower's log start has changed. on_log_end: called when a partition with followers has new
        uncommitted records. on_replicas: called when replicas or ISR of a partition that is led here may have changed.
        exists: whether the cluster has the partition. alter_isr: writes an ISR change to the store; raises StoreError.
        broker_epoch_of: the epoch of a live broker, else None. on_isr_change: called for each ISR change that was
        written. on_leadership: called for each change of leadership.
        """
        self.broker_id = broker_id
        self._on_high_watermark = on_high_watermark
        self._on_log_end = on_log_end
        self._on_replicas = on_replicas
        self._on_isr_change = on_isr_change
        self._on_leadership = on_leadership
        self._clock = clock or SystemClock()
        self.isr_changes = IsrChanges(alter_isr or _no_store, self._clock, on_high_watermark, self._isr_changed)
        self._max_lag_ms = max_lag_ms
        self._broker_epoch_of = broker_epoch_of
        self._exists = exists
        self._replicas: dict[TopicPartition, Replica] = {}
        self._offline: dict[TopicPartition, str] = {}
        self.compressions: dict[TopicPartition, Compression] = {}
        """The compression of produced batches, for replicas of topics with a codec of their own."""
        self.generation = 0
        """A counter, incremented when an online replica is added or removed."""

    # Look-up

    def __iter__(self) -> Iterator[Replica]:
        return iter(tuple(self._replicas.values()))

    @property
    def names(self) -> tuple[TopicPartition, ...]:
        """The partitions on this broker, including those that are offline."""
        return (*self._replicas, *self._offline)

    @property
    def offline(self) -> Mapping[TopicPartition, str]:
        """The partitions whose log cannot be used, each with the reason."""
        return self._offline

    def get(self, name: TopicPartition) -> Replica:
        """Return the partition's replica, whether leader or not.

        Raises KafkaStorageError if its log has failed, NotLeaderOrFollower if only other brokers have a replica, and
        UnknownTopicOrPartition if the cluster does not have the partition.
        """
        replica = self._replicas.get(name)
        if replica is None:
            if why := self._offline.get(name):
                raise KafkaStorageError(f"{name} is offline: {why}")
            if self._exists(name):
                raise NotLeaderOrFollower(f"{name} has no replica here")
            raise UnknownTopicOrPartition(f"{name.topic!r} has no partition {name.partition} here")
        return replica

    def get_leader(self, name: TopicPartition) -> Replica:
        """Return the replica of a partition that this broker leads.

        Raises as `get` does, NotLeaderOrFollower if another broker leads it, and UnknownTopicOrPartition if it was
        deleted meanwhile.
        """
        replica = self._replicas.get(name) or self.get(name)
        if not replica.partition.is_leader:
            if not self._exists(name):
                raise UnknownTopicOrPartition(f"{name.topic!r} has no partition {name.partition}, or not any more")
            replica.partition.check_leader()
        return replica

    def find(self, name: TopicPartition) -> Replica | None:
        """Return the replica; None if this broker has none, or it is offline."""
        return self._replicas.get(name)

    def is_led(self, name: TopicPartition) -> bool:
        """Return whether this broker leads the partition. Any thread."""
        replica = self._replicas.get(name)
        return replica is not None and replica.partition.is_leader

    def find_high_watermark(self, name: TopicPartition) -> int | None:
        """Return the replica's high watermark; None if `find` finds none. Any thread."""
        replica = self._replicas.get(name)
        return replica.partition.high_watermark if replica else None

    # Adding and removing

    def put(self, name: TopicPartition, log: Log, config: TopicConfig, *, high_watermark: int) -> Replica:
        """Return the partition's replica with this log; create it with `high_watermark` if there is none."""
        replica = self._replicas.get(name)
        if replica and replica.log is not log:
            self._leave_partition(name)
            replica = None
        if replica is None:
            partition = Partition(
                name, broker_id=self.broker_id, log_end_offset=log.log_end_offset, high_watermark=high_watermark
            )
            replica = self._replicas[name] = Replica(partition=partition, log=log, config=config)
            self._offline.pop(name, None)
            self.generation += 1
        self._configure(replica, config)
        return replica

    def _configure(self, replica: Replica, config: TopicConfig) -> None:
        replica.config = config
        if compression := compression_of(config):
            self.compressions[replica.partition.name] = compression
        else:
            self.compressions.pop(replica.partition.name, None)

    def drop(self, name: TopicPartition) -> None:
        """Remove a partition; operations that wait for it end with an error."""
        self._offline.pop(name, None)
        self._leave_partition(name)

    def set_offline(self, name: TopicPartition, why: str) -> None:
        """Stop serving the partition; requests, including waiting ones, get KafkaStorageError with the reason `why`."""
        self._offline[name] = why
        self._leave_partition(name)

    def set_dir_offline(self, path: str, why: str) -> None:
        """Stop serving the partitions of a failed log directory; `path` is its folder."""
        for replica in self:
            if posixpath.dirname(replica.log.folder) == path:
                self.set_offline(replica.partition.name, why)

    def _leave_partition(self, name: TopicPartition) -> None:
        if replica := self._replicas.pop(name, None):
            self.generation += 1
            self.compressions.pop(name, None)
            before = (replica.partition.is_leader, NO_EPOCH)
            replica.partition.leave()
            self.leadership_changed(replica.partition, before)

    def leadership_changed(self, partition: Partition, before: tuple[bool, int]) -> None:
        """Call the leadership and high watermark callbacks if `before` (led here, leader epoch) differs from now."""
        if before == (partition.is_leader, partition.leader_epoch):
            return
        logger.info(
            "%s: %s of leader epoch %d, leader %d", partition.name, partition.role.value, partition.leader_epoch,
            partition.leader,
        )  # fmt: skip
        self._on_high_watermark(partition.name)
        self._on_leadership(partition.name, partition.is_leader, partition.leader_epoch)

    def replicas_changed(self, partition: Partition) -> None:
        """Call the callback for replicas and ISR, after they may have changed."""
        self._on_replicas(partition.name)

    def _isr_changed(self, partition: Partition, before: tuple[int, ...]) -> None:
        self._on_isr_change(partition, before)
        self._on_replicas(partition.name)

    def log_start_changed(self, name: TopicPartition) -> None:
        """Call the high watermark callback, as the log start of a partition that is led here has moved."""
        self._on_high_watermark(name)

    def update_configs(self, configs: Mapping[str, TopicConfig]) -> None:
        """Set the configurations of the partitions of these topics."""
        for replica in self:
            if config := configs.get(replica.partition.name.topic):
                self._configure(replica, config)

    # At the leader

    def append(
        self,
        replica: Replica,
        data: bytearray | memoryview,
        *,
        acks: int,
        leader_epoch: int | None = None,
        verification: Verification | None = None,
        is_coordinators: bool = False,
    ) -> LogAppendInfo:
        """Append the batches of one produce request and return their place; the offsets are written into `data`.

        verification, is_coordinators: see `Log.append`. The caller must call `flush` if the result says `must_flush`.
        Raises as `Partition.check_leader_epoch`, `Partition.check_in_sync` and `Log.append` do.
        """
        partition = replica.partition
        if leader_epoch is not None:
            partition.check_leader_epoch(leader_epoch)
        partition.check_in_sync(acks, replica.config.min_insync_replicas)
        appended = replica.log.append(
            data, leader_epoch=partition.leader_epoch, verification=verification, is_coordinators=is_coordinators
        )
        if appended.is_duplicate:
            self._count_flushed(replica)
        else:
            self._after_append(partition, appended)
        return appended

    def append_marker(
        self,
        replica: Replica,
        marker: EndTransactionMarker,
        *,
        producer_id: int,
        producer_epoch: int,
        is_strict: bool,
        leader_epoch: int | None = None,
    ) -> LogAppendInfo:
        """Append the marker that ends a producer's transaction in a partition, and return its place.

        Otherwise as `append` with acks=all. Raises as `Partition.check_leader_epoch`, `Partition.check_in_sync` and
        `Log.append_marker` do.
        """
        partition = replica.partition
        partition.check_leader_epoch(leader_epoch)
        partition.check_in_sync(ALL_IN_SYNC, replica.config.min_insync_replicas)
        appended = replica.log.append_marker(
            marker, producer_id=producer_id, producer_epoch=producer_epoch, leader_epoch=partition.leader_epoch,
            is_strict=is_strict,
        )  # fmt: skip
        if appended.is_duplicate:
            self._count_flushed(replica)
        else:
            self._after_append(partition, appended)
        return appended

    def _after_append(self, partition: Partition, appended: LogAppendInfo) -> None:
        if partition.log_appended(appended.last_offset + 1, counts=not appended.must_flush):
            self._on_high_watermark(partition.name)
        elif partition.followers:
            self._on_log_end(partition.name)

    async def flush(self, replica: Replica) -> int:
        """Flush the log; its records then count at the leader. Return the offset below which all records are flushed.

        The flush continues if the caller is cancelled. Raises KafkaStorageError.
        """
        return await asyncio.shield(self._flush(replica))

    async def _flush(self, replica: Replica) -> int:
        await asyncio.to_thread(replica.log.flush)
        self._count_flushed(replica)
        return replica.log.recovery_point

    def _count_flushed(self, replica: Replica) -> None:
        """Count records that were flushed, maybe by another thread, after the flush of their append had failed."""
        partition = replica.partition
        if partition.is_leader and partition.log_counts(replica.log.counted_end_offset):
            self._on_high_watermark(partition.name)

    def read(self, replica: Replica, offset: int, max_bytes: int, *, min_one_batch: bool) -> LogSlice:
        """Return replicated batches from `offset` on. Raises OffsetOutOfRange if `offset` is not in the log."""
        return replica.log.read(
            offset, max_bytes, max_offset=replica.partition.high_watermark, min_one_batch=min_one_batch
        )

    def read_committed(
        self, replica: Replica, offset: int, max_bytes: int, *, min_one_batch: bool
    ) -> tuple[LogSlice, list[AbortedTransaction]]:
        """Return batches below the last stable offset, and which transactions among them were aborted.

        Raises as `Log.read_with_aborted` does.
        """
        return replica.log.read_with_aborted(
            offset, max_bytes, max_offset=replica.last_stable_offset, min_one_batch=min_one_batch
        )

    def follower_fetched(
        self, replica: Replica, broker_id: int, *, broker_epoch: int, fetch_offset: int, log_start_offset: int
    ) -> None:
        """Record a follower's fetch in the current leader epoch; its log must not diverge from the leader's.

        The fetch is ignored unless `broker_epoch` is the one known for that broker: an earlier one is from before its
        restart. Raises NotLeaderOrFollower if the broker has no replica of the partition.
        """
        if not self.is_epoch_of(broker_id, broker_epoch):
            return
        partition = replica.partition
        follower = partition.followers.get(broker_id)
        is_trimmed = follower is not None and follower.log_start_offset < log_start_offset
        effects = partition.follower_fetched(
            broker_id,
            broker_epoch=broker_epoch,
            fetch_offset=fetch_offset,
            log_start_offset=log_start_offset,
            now_ms=self._clock.monotonic_ms(),
            leader_log_start_offset=replica.log.log_start_offset,
        )
        if effects is not NOTHING:
            self.isr_changes.carry_out(partition, effects)
        if is_trimmed:
            self._on_high_watermark(partition.name)  # a DeleteRecords request may wait for it

    def is_epoch_of(self, broker_id: int, broker_epoch: int) -> bool:
        """Return whether `broker_epoch` is the known epoch of a live broker."""
        return self._broker_epoch_of(broker_id) == broker_epoch

    def low_watermark(self, replica: Replica) -> int:
        """Return the lowest log start offset of the partition's live replicas."""
        partition = replica.partition
        alive = {each for each in partition.replicas if self._broker_epoch_of(each) is not None}
        return partition.low_watermark(replica.log.log_start_offset, alive)

    def shrink_isr(self, some: Iterable[Replica] | None = None) -> None:
        """Remove lagging replicas from the ISRs, and count flushed records; call it every half of
        replica.lag.time.max.ms.

        some: the partitions to check, of which missing ones are ignored; None: all
        """
        now_ms = self._clock.monotonic_ms()
        for replica in self if some is None else some:
            partition = replica.partition
            if some is not None and self.find(partition.name) is not replica:
                continue
            self._count_flushed(replica)
            self.isr_changes.carry_out(partition, partition.shrink_isr(now_ms, self._max_lag_ms))
            self.isr_changes.resume(partition)

    def resume_isr_changes(self) -> None:
        """Write pending ISR changes, after the cluster store has become reachable again."""
        for replica in self:
            self.isr_changes.resume(replica.partition)

    async def close(self) -> None:
        """Stop changing ISRs: the broker stops."""
        await self.isr_changes.stop()

    # At a follower

    def followed(self, replica: Replica, leader_high_watermark: int) -> None:
        """Take over the leader's high watermark, after the log has taken the records of the response."""
        if replica.partition.followed(replica.log.log_end_offset, leader_high_watermark):
            self._on_high_watermark(replica.partition.name)

    def truncated(self, replica: Replica) -> None:
        """Take over the log's end after it was truncated."""
        replica.partition.truncated(replica.log.log_end_offset)


async def _no_store(change: AlterIsr) -> AlterIsrResult:
    raise ConnectionLoss(f"{change.name}: there is no store to write the ISR to")
