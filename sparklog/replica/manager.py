"""The replicas of this broker: the shell that does what `Partition` decides on the logs of `LogManager`.

    become     the controller's LeaderAndIsr: lead or follow partitions. One such request, or StopReplica, at a time
    append     at the leader; who waits for committed records is told when the high watermark moves
    fetched    a follower has asked: it moves the high watermark, and may join the ISR
    shrink     time has passed: who lags leaves the ISR
    stop       the controller's StopReplica: follow or lead no more; and take the log away, where it says so

All methods run on the event loop, but for those that say they block. Appends and reads are a system call into the
page cache, cheaper than handing them to a thread; whatever waits for a disk is done in a thread.

A partition that becomes led is followed no more before, so nobody else writes to its log. It is led from the moment the
loop says so: an append that comes earlier is refused, one that comes later has the new epoch. Who waits for records
that are not committed when the leadership goes is told at once (`Partition.is_replicated`).

A broker leads and follows nothing before the controller has spoken. High watermarks: high_watermarks.py; changes of the
ISR: isr_changes.py.
"""

from __future__ import annotations

import asyncio
import logging
import posixpath
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial

from sparklog.base.clock import Clock, SystemClock
from sparklog.base.errors import (
    ConnectionLoss,
    FencedLeaderEpoch,
    InvalidConfig,
    KafkaError,
    KafkaStorageError,
    StaleBrokerEpoch,
    StaleControllerEpoch,
)
from sparklog.base.fs import Fs
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.log.directory.manager import LogManager
from sparklog.log.directory.topic_configs import Overrides
from sparklog.log.log import Appended, Log, LogSlice
from sparklog.replica.following import Fetchers, FetchState, NoFetchers
from sparklog.replica.high_watermarks import HighWatermarkFiles, HighWatermarks
from sparklog.replica.isr_changes import IsrChanges, WriteIsr
from sparklog.replica.messages import (
    LEADER_EPOCH_DURING_DELETE,
    NO_BROKER_EPOCH,
    NO_LEADER,
    AlterIsr,
    IsrAltered,
    LeaderAndIsr,
    LeaderAndIsrResponse,
    PartitionState,
    StopPartition,
    StopReplica,
    StopReplicaResponse,
)
from sparklog.replica.partition import NO_EPOCH, NOTHING, Partition
from sparklog.replica.registry import Replica, Replicas
from sparklog.runtime.turns import Turns

logger = logging.getLogger(__name__)
__all__ = ["Replica", "ReplicaManager"]


@dataclass(slots=True)
class _Opened:
    """A log that a partition is to have, and what is known of its high watermark."""

    log: Log
    high_watermark: int


class ReplicaManager(Replicas):
    """The replicas, and what is done to them.

    `fetchers` are given by whoever puts the broker together. `broker_epoch` is this broker's own, once it has one.
    """

    def __init__(
        self,
        fs: Fs,
        logs: LogManager,
        on_high_watermark: Callable[[TopicPartition], None],
        *,
        broker_id: int = NO_LEADER,
        clock: Clock | None = None,
        max_lag_ms: int = 30_000,
        topic_defaults: TopicConfig | None = None,
        alter_isr: WriteIsr | None = None,
        broker_epoch_of: Callable[[int], int | None] = lambda _: None,
        exists: Callable[[TopicPartition], bool] = lambda _: False,
        on_log_end: Callable[[TopicPartition], None] = lambda _: None,
        newest_change: Callable[[], int] = lambda: 0,
    ) -> None:
        """on_high_watermark, exists: as of `Replicas`. on_log_end: a partition that others follow has records that are
        not committed yet. alter_isr: writes to the store; raises StoreError. broker_epoch_of: of a broker that is
        alive. newest_change: of the store; may block."""
        super().__init__(on_high_watermark, exists)
        self._logs = logs
        self._on_log_end = on_log_end
        self._broker_id = broker_id
        self._clock = clock or SystemClock()
        self._max_lag_ms = max_lag_ms
        self._topic_defaults = topic_defaults or TopicConfig()
        self._broker_epoch_of = broker_epoch_of
        self._newest_change = newest_change
        self._files = HighWatermarkFiles(fs, self._is_here)
        self._turns = Turns()
        self.isr_changes = IsrChanges(alter_isr or _no_store, self._clock, on_high_watermark)
        self.fetchers: Fetchers = NoFetchers()
        self.broker_epoch = NO_BROKER_EPOCH
        self.controller_epoch = NO_EPOCH
        self._number = 0
        """Of the controller's last request."""

    # What the controller says

    def check_controller(self, request: LeaderAndIsr | StopReplica) -> None:
        """Refuse a controller that has been deposed, what was meant for this broker before its restart, and what comes
        after a later request: it was sent again, and done, long ago.

        Raises StaleControllerEpoch or StaleBrokerEpoch; else the controller is the newest that is known.
        """
        asked, seen = (request.controller_epoch, request.number), (self.controller_epoch, self._number)
        if asked < seen:
            raise StaleControllerEpoch(f"controller epoch and request {asked} are over: {seen} have been seen")
        if NO_BROKER_EPOCH < request.broker_epoch < self.broker_epoch:  # a greater: the controller has seen it first
            raise StaleBrokerEpoch(f"for broker epoch {request.broker_epoch}; this is {self.broker_epoch}")
        self.controller_epoch, self._number = asked

    async def become(self, request: LeaderAndIsr) -> LeaderAndIsrResponse:
        """Lead or follow partitions; each that cannot be has an error. Raises as `check_controller` does.

        Carried out whether whoever asks waits or not: half of it must not stay.
        """
        return await self._turns.run(self, partial(self._become, request))

    async def _become(self, request: LeaderAndIsr) -> LeaderAndIsrResponse:
        self.check_controller(request)
        errors: dict[TopicPartition, KafkaError] = {}
        states: dict[TopicPartition, PartitionState] = {}
        for state in request.partitions:
            if error := self._fenced(state.name, state.leader_epoch):
                errors[state.name] = error
            else:
                states[state.name] = state
        await self.fetchers.unfollow([state.name for state in states.values() if self._is_moved(state)])
        configs = {name.topic: self._config_of(name.topic, request.overrides) for name in states}
        overrides = {topic: request.overrides.get(topic, {}) for topic in configs}
        opened = await asyncio.to_thread(self._open_all, states, configs, overrides)
        followed: dict[TopicPartition, FetchState] = {}
        for name, found in opened.items():
            if isinstance(found, KafkaStorageError):
                self.set_offline(name, str(found))
                errors[name] = found
                continue
            if self._apply(states[name], request.controller_epoch, found, configs[name.topic]):
                state = states[name]
                followed[name] = FetchState(
                    leader=state.leader, leader_epoch=state.leader_epoch, topic_id=state.topic_id
                )
        self.fetchers.follow(followed)
        return LeaderAndIsrResponse(errors=errors)

    async def stop(self, request: StopReplica) -> StopReplicaResponse:
        """Follow or lead partitions no more; carried out like `become`. Raises as `check_controller` does."""
        return await self._turns.run(self, partial(self._stop, request))

    async def _stop(self, request: StopReplica) -> StopReplicaResponse:
        self.check_controller(request)
        errors: dict[TopicPartition, KafkaError] = {}
        stopped: list[StopPartition] = []
        for each in request.partitions:
            is_deleted = each.leader_epoch == LEADER_EPOCH_DURING_DELETE
            if not is_deleted and (error := self._fenced(each.name, each.leader_epoch)):
                errors[each.name] = error
            else:
                stopped.append(each)
        await self.fetchers.unfollow([each.name for each in stopped])
        for each in stopped:
            self._stop_one(each)
            if each.delete:
                is_deleted = each.leader_epoch == LEADER_EPOCH_DURING_DELETE
                why = "its topic is deleted" if is_deleted else "its replicas are on other brokers"
                logger.info("deleting %s: %s", each.name, why)
        errors.update(await asyncio.to_thread(self._delete_all, {each.name: None for each in stopped if each.delete}))
        return StopReplicaResponse(errors=errors)

    def _fenced(self, name: TopicPartition, leader_epoch: int) -> FencedLeaderEpoch | None:
        replica = self._replicas.get(name)
        if replica is None or leader_epoch >= replica.partition.leader_epoch:
            return None
        return FencedLeaderEpoch(f"{name}: leader epoch {leader_epoch} is over, it is {replica.partition.leader_epoch}")

    def _is_moved(self, state: PartitionState) -> bool:
        """Whether the partition must not be copied as it is now."""
        replica = self._replicas.get(state.name)
        if replica is None:
            return True
        partition = replica.partition
        return (partition.leader, partition.leader_epoch) != (state.leader, state.leader_epoch)

    def _apply(self, state: PartitionState, controller_epoch: int, opened: _Opened, config: TopicConfig) -> bool:
        """Whether it is to be copied from another broker from now on."""
        replica = self._find_or_add(state.name, opened, config)
        partition = replica.partition
        before = (partition.is_leader, partition.leader_epoch)
        is_followed = False
        if state.leader == self._broker_id:
            effects = partition.become_leader(
                state,
                controller_epoch,
                log_end_offset=replica.log.log_end_offset,
                counted_end_offset=replica.log.counted_end_offset,
                now_ms=self._clock.monotonic_ms(),
            )
            self.isr_changes.carry_out(partition, effects)
        else:
            is_followed = partition.become_follower(state, controller_epoch) and state.leader != NO_LEADER
        self._changed(partition, before)
        return is_followed

    def _find_or_add(self, name: TopicPartition, opened: _Opened, config: TopicConfig) -> Replica:
        replica = self._replicas.get(name)
        if replica and replica.log is not opened.log:
            self._leave(name)
            replica = None
        if replica is None:
            partition = Partition(
                name,
                broker_id=self._broker_id,
                log_end_offset=opened.log.log_end_offset,
                high_watermark=opened.high_watermark,
            )
            replica = self._replicas[name] = Replica(partition=partition, log=opened.log, config=config)
            self._offline.pop(name, None)
        replica.config = config
        return replica

    def _stop_one(self, stopped: StopPartition) -> None:
        if stopped.delete:
            self.drop(stopped.name)
        elif replica := self._replicas.get(stopped.name):
            before = (replica.partition.is_leader, replica.partition.leader_epoch)
            replica.partition.stop(stopped.leader_epoch)
            self._changed(replica.partition, before)

    def _config_of(self, topic: str, overrides: Mapping[str, Mapping[str, str]]) -> TopicConfig:
        try:
            return TopicConfig.parse(overrides.get(topic, {}), self._topic_defaults)
        except InvalidConfig as error:
            logger.error("the configuration of topic %s is not used: %s", topic, error)
            return self._topic_defaults

    # What follows blocks: it runs in a thread.

    def _open_all(
        self,
        states: Mapping[TopicPartition, PartitionState],
        configs: Mapping[str, TopicConfig],
        overrides: Mapping[str, Overrides],
    ) -> dict[TopicPartition, _Opened | KafkaStorageError]:
        def open_one(state: PartitionState) -> _Opened | KafkaStorageError:
            try:
                return self._open(state, configs[state.name.topic])
            except KafkaStorageError as error:
                logger.error("%s is offline: %s", state.name, error)
                return error

        opened = self._logs.in_threads(open_one, states.values())
        try:
            self._logs.list_new()
        except KafkaStorageError as error:  # nobody may count on what is new
            opened = [each if isinstance(each, KafkaStorageError) or each.log.size_bytes else error for each in opened]
        self._keep_configs(overrides)
        return dict(zip(states, opened, strict=True))

    def _open(self, state: PartitionState, config: TopicConfig) -> _Opened:
        log = self._logs.create(state.name, config, topic_id=state.topic_id, is_new=state.is_new)
        if log.config != config:
            log.configure(config)
        if log.must_flush:  # whoever leads counts what is flushed
            log.flush()
        committed = self._files.find(posixpath.dirname(log.folder), state.name)
        return _Opened(log, log.log_start_offset if committed is None else committed)

    def _delete_all(self, names: Collection[TopicPartition]) -> dict[TopicPartition, KafkaStorageError]:
        self._files.forget(names)
        errors = self._logs.delete_all(names)
        for name, error in errors.items():
            logger.error("%s could not be deleted: %s", name, error)
        return errors

    def _is_here(self, name: TopicPartition) -> bool:
        try:
            return self._logs.get(name) is not None
        except KafkaStorageError:
            return True

    # Configuration, and the end

    def update_config(self, topic: str, config: TopicConfig) -> None:
        self._logs.update_config(topic, config)
        for replica in self:
            if replica.partition.name.topic == topic:
                replica.config = config

    async def keep_configs(self, overrides: Mapping[str, Overrides]) -> None:
        """Keep a copy of what topics go by, where this broker has logs of them."""
        await asyncio.to_thread(self._keep_configs, overrides)

    def _keep_configs(self, overrides: Mapping[str, Overrides]) -> None:
        self._logs.keep_configs(overrides, self._newest_change())

    async def close(self) -> None:
        """Change no ISR any more, and end what is under way: the broker stops."""
        await self.isr_changes.stop()
        await self._turns.settled()

    # At the leader

    def append(
        self, name: TopicPartition, data: bytearray | memoryview, *, acks: int, leader_epoch: int | None = None
    ) -> Appended:
        """As `append_to`; raises as `get_leader` does, too."""
        return self.append_to(self.get_leader(name), data, acks=acks, leader_epoch=leader_epoch)

    def append_to(
        self, replica: Replica, data: bytearray | memoryview, *, acks: int, leader_epoch: int | None = None
    ) -> Appended:
        """Append the batches of one produce request; their offsets are written into `data`. Call `flush_if_due` then.

        Raises as `Partition.check_leader_epoch`, `Partition.check_in_sync` and `Log.append` do.
        """
        partition = replica.partition
        partition.check_leader_epoch(leader_epoch)
        partition.check_in_sync(acks, replica.config.min_insync_replicas)
        appended = replica.log.append(data, leader_epoch=partition.leader_epoch)
        if not appended.is_duplicate:
            if partition.log_appended(appended.last_offset + 1, counts=not appended.must_flush):
                self._on_high_watermark(partition.name)
            elif partition.followers:
                self._on_log_end(partition.name)
        return appended

    async def flush_if_due(self, replica: Replica) -> None:
        """Return once what was appended is on the disk, where flush.messages wants that; at the leader it counts then,
        whether whoever asks still waits or not. Raises KafkaStorageError.
        """
        if replica.log.must_flush:
            await asyncio.shield(self._flush(replica))
        else:
            self._count(replica)

    async def _flush(self, replica: Replica) -> None:
        await asyncio.to_thread(replica.log.flush)
        self._count(replica)

    def _count(self, replica: Replica) -> None:
        partition = replica.partition
        if partition.is_leader and partition.log_counts(replica.log.counted_end_offset):
            self._on_high_watermark(partition.name)

    def read(self, replica: Replica, offset: int, max_bytes: int, *, min_one_batch: bool) -> LogSlice:
        """Committed batches from `offset`; raises OffsetOutOfRange outside of the log."""
        return replica.log.read(
            offset, max_bytes, max_offset=replica.partition.high_watermark, min_one_batch=min_one_batch
        )

    def follower_fetched(
        self, replica: Replica, broker_id: int, *, broker_epoch: int, fetch_offset: int, log_start_offset: int
    ) -> None:
        """A follower asks for what comes after `fetch_offset`, in the current leader epoch, and its log does not
        diverge from the leader's. It counts only in the life of the broker that the controller has spoken of.

        Raises NotLeaderOrFollower where it is none of the partition's replicas.
        """
        if self._broker_epoch_of(broker_id) != broker_epoch:
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
            self._on_high_watermark(partition.name)  # a DeleteRecords may wait for that

    def low_watermark(self, replica: Replica) -> int:
        """The lowest log start of the partition's live replicas."""
        partition = replica.partition
        alive = {each for each in partition.replicas if self._broker_epoch_of(each) is not None}
        return partition.low_watermark(replica.log.log_start_offset, alive)

    def shrink_isr(self) -> None:
        """Let those who lag leave the ISRs; to be called every half of replica.lag.time.max.ms."""
        now_ms = self._clock.monotonic_ms()
        for replica in self:
            partition = replica.partition
            self.isr_changes.carry_out(partition, partition.look_for_laggards(now_ms, self._max_lag_ms))
            self.isr_changes.resume(partition)

    def resume_isr_changes(self) -> None:
        """The cluster store can be reached again: write what could not be written meanwhile."""
        for replica in self:
            self.isr_changes.resume(replica.partition)

    # At a follower

    def followed(self, replica: Replica, leader_high_watermark: int) -> None:
        """The log has taken what the leader answered, if anything."""
        if replica.partition.followed(replica.log.log_end_offset, leader_high_watermark):
            self._on_high_watermark(replica.partition.name)

    def truncated(self, replica: Replica) -> None:
        """The log has been cut."""
        replica.partition.truncated(replica.log.log_end_offset)

    # High watermarks on the disk

    def high_watermarks(self) -> HighWatermarks:
        """By log directory, what `write_high_watermarks` is to write."""
        found: HighWatermarks = {folder: {} for folder in self._logs.dirs}
        for replica in self:
            folder = posixpath.dirname(replica.log.folder)
            found.setdefault(folder, {})[replica.partition.name] = replica.partition.high_watermark
        return found

    def write_high_watermarks(self, found: Mapping[str, Mapping[TopicPartition, int]]) -> None:
        """Blocks: writes and flushes one file in each directory, unless it says so already."""
        self._files.write(found)


async def _no_store(change: AlterIsr) -> IsrAltered:
    raise ConnectionLoss(f"{change.name}: there is no store to write the ISR to")
