"""Carries out the controller's requests: LeaderAndIsr and StopReplica, one at a time.

    become    lead or follow partitions
    stop      stop leading or following; delete the log if the request says so

Copying a partition ends before this broker leads it, so that nothing else writes to its log. Leadership begins in one
step on the event loop: an earlier append is refused, a later one has the new epoch. When leadership ends, requests that
wait for uncommitted records fail at once (`Partition.is_replicated`).

A broker leads and follows no partition before the controller's first request.
"""

from __future__ import annotations

import asyncio
import logging
import posixpath
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Protocol
from uuid import UUID

from msgspec import Struct

from sparklog.base.clock import Clock, SystemClock
from sparklog.base.errors import (
    FencedLeaderEpoch,
    KafkaError,
    KafkaStorageError,
    StaleBrokerEpoch,
    StaleControllerEpoch,
)
from sparklog.base.fs import Fs
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.log.directory.manager import LogManager, set_deleted_aside
from sparklog.log.directory.topic_configs import Overrides, TopicCopy, config_of
from sparklog.log.log import Log
from sparklog.replica.high_watermarks import HighWatermarkFiles, HighWatermarks
from sparklog.replica.manager import Replica, ReplicaManager
from sparklog.replica.messages import (
    LEADER_EPOCH_DURING_DELETE,
    NO_BROKER_EPOCH,
    NO_LEADER,
    LeaderAndIsr,
    LeaderAndIsrPartitionState,
    LeaderAndIsrResponse,
    LogEnd,
    StopPartition,
    StopReplica,
    StopReplicaResponse,
)
from sparklog.replica.partition import NO_EPOCH
from sparklog.runtime.serial_executor import SerialExecutor


class InitialFetchState(Struct, frozen=True, kw_only=True):
    """The leader that a partition is copied from."""

    leader: int
    leader_epoch: int
    topic_id: UUID


class Fetchers(Protocol):
    """Copies the logs of partitions that this broker follows. Used on the event loop."""

    def follow(self, states: Mapping[TopicPartition, InitialFetchState]) -> None:
        """Copy these partitions from their log ends on; replaces their earlier states."""
        ...

    async def unfollow(self, names: Iterable[TopicPartition]) -> None:
        """Stop copying these partitions. On return, no task or thread works on their logs any more."""
        ...


logger = logging.getLogger(__name__)


class _OpenedReplica(Struct):
    """A partition's opened log and the high watermark to start from."""

    log: Log
    high_watermark: int


class StateChanges:
    """Carries out the controller's requests on replicas, their logs and their fetchers."""

    def __init__(
        self,
        fs: Fs,
        logs: LogManager,
        replicas: ReplicaManager,
        fetchers: Fetchers,
        *,
        clock: Clock | None = None,
        topic_defaults: Callable[[], TopicConfig] = TopicConfig,
        newest_change: Callable[[], int] = lambda: 0,
        broker_epoch: Callable[[], int] = lambda: 0,
        on_pending: Callable[[], None] = lambda: None,
    ) -> None:
        """topic_defaults: returns the present defaults of topics. newest_change: returns the number of the cluster
        store's newest change; may block. broker_epoch: returns this broker's own epoch, NO_BROKER_EPOCH until it
        has registered. on_pending: called when there are `pending` partitions.
        """
        self.pending: set[TopicPartition] = set()
        """Partitions whose log could not be opened or deleted, though its disk works: for want of room or descriptors.
        The controller is to ask again."""
        self._logs = logs
        self._replicas = replicas
        self._fetchers = fetchers
        self._clock = clock or SystemClock()
        self._topic_defaults = topic_defaults
        self._newest_change = newest_change
        self._broker_epoch = broker_epoch
        self._on_pending = on_pending
        self._files = HighWatermarkFiles(fs, self._is_here)
        self._executor = SerialExecutor()
        self._controller_epoch = NO_EPOCH
        self._number = 0
        """Number of the controller's last request."""

    def check_controller(self, request: LeaderAndIsr | StopReplica) -> None:
        """Refuse outdated requests; otherwise remember the request's controller epoch and number.

        Raises StaleControllerEpoch after a newer controller epoch or a later request: the sender is a deposed
        controller, or the request is a late copy. Raises StaleBrokerEpoch as `check_broker_epoch` does.
        """
        asked, seen = (request.controller_epoch, request.number), (self._controller_epoch, self._number)
        if asked < seen:
            raise StaleControllerEpoch(f"controller epoch and request {asked} are over: {seen} have been seen")
        self.check_broker_epoch(request.broker_epoch)
        self._controller_epoch, self._number = asked

    def check_broker_epoch(self, epoch: int) -> None:
        """Raise StaleBrokerEpoch if a request for this broker epoch was meant for this broker before its restart.

        That may be true of any request until the broker has registered: as leader it would make its followers cut off
        what it has lost. The controller sends a refused request again. A greater epoch is one not known here yet.
        """
        own_epoch = self._broker_epoch()
        if own_epoch == NO_BROKER_EPOCH or epoch < own_epoch:
            raise StaleBrokerEpoch(f"for broker epoch {epoch}; this is {own_epoch}")

    async def become(self, request: LeaderAndIsr) -> LeaderAndIsrResponse:
        """Lead or follow partitions, and return an error for each failure. Raises as `check_controller` does.

        Runs to its end even if the caller is cancelled.
        """
        return await self._executor.run(self, partial(self._become, request))

    async def _become(self, request: LeaderAndIsr) -> LeaderAndIsrResponse:
        self.check_controller(request)
        await self._set_former_aside(request.partitions)
        errors: dict[TopicPartition, KafkaError] = {}
        states: dict[TopicPartition, LeaderAndIsrPartitionState] = {}
        for state in request.partitions:
            if error := self._fencing_error(state.name, state.leader_epoch) or self._doubled_leader_error(state):
                errors[state.name] = error
            else:
                states[state.name] = state
        await self._fetchers.unfollow([state.name for state in states.values() if self._is_moved(state)])
        overrides = {name.topic: request.overrides.get(name.topic, {}) for name in states}
        configs = {topic: config_of(topic, own, self._topic_defaults()) for topic, own in overrides.items()}
        opened = await asyncio.to_thread(self._open_all, states, configs, overrides)
        followed: dict[TopicPartition, InitialFetchState] = {}
        ends: list[LogEnd] = []
        for name, found in opened.items():
            if isinstance(found, KafkaStorageError):
                self._replicas.set_offline(name, str(found))
                errors[name] = found
                continue
            if self._apply(states[name], request.controller_epoch, found, configs[name.topic]):
                state = states[name]
                followed[name] = InitialFetchState(
                    leader=state.leader, leader_epoch=state.leader_epoch, topic_id=state.topic_id
                )
            if states[name].is_restored:
                log = found.log
                ends.append(LogEnd(name=name, leader_epoch=log.latest_epoch, end_offset=log.log_end_offset))
        self._note_pending(opened, errors)
        self._fetchers.follow(followed)
        return LeaderAndIsrResponse(errors=errors, ends=tuple(ends))

    async def _set_former_aside(self, states: Iterable[LeaderAndIsrPartitionState]) -> None:
        """Set the replicas of deleted topics aside whose names newer topics have now.

        The broker had replicas that the deletion did not know of. Their leader epochs say nothing about the newer
        topic's, and its logs begin empty.
        """
        ids = {state.name.topic: state.topic_id for state in states if self._is_former(state.name, state.topic_id)}
        if not ids:
            return
        names = [replica.partition.name for replica in self._replicas]
        former = [name for name in names if name.topic in ids and self._is_former(name, ids[name.topic])]
        await self._fetchers.unfollow(former)
        for name in former:
            self._replicas.drop(name)
        await asyncio.to_thread(self._set_deleted_aside, former)

    def _is_former(self, name: TopicPartition, topic_id: UUID) -> bool:
        """Return whether the replica is one of another topic than that with this id."""
        replica = self._replicas.find(name)
        return replica is not None and replica.log.topic_id not in (None, topic_id)

    async def stop(self, request: StopReplica) -> StopReplicaResponse:
        """Stop leading or following partitions, and return an error for each failure.

        Runs to its end like `become`. Raises as `check_controller` does.
        """
        return await self._executor.run(self, partial(self._stop, request))

    async def _stop(self, request: StopReplica) -> StopReplicaResponse:
        self.check_controller(request)
        errors: dict[TopicPartition, KafkaError] = {}
        stopped: list[StopPartition] = []
        for each in request.partitions:
            is_deleted = each.leader_epoch == LEADER_EPOCH_DURING_DELETE
            if not is_deleted and (error := self._fencing_error(each.name, each.leader_epoch)):
                errors[each.name] = error
            else:
                stopped.append(each)
        errors.update(await self._stop_all(stopped))
        self._note_pending([each.name for each in stopped if each.delete], errors)
        return StopReplicaResponse(errors=errors)

    async def delete_strays(self, find: Callable[[], Collection[StopPartition]]) -> None:
        """Delete stray logs, which no request has deleted. Runs to its end like `become`.

        find: returns the logs; called while no request is carried out
        """
        await self._executor.run(self, partial(self._delete_strays, find))

    async def _delete_strays(self, find: Callable[[], Collection[StopPartition]]) -> None:
        await self._stop_all([each for each in find() if not self._fencing_error(each.name, each.leader_epoch)])

    async def _stop_all(self, stopped: Collection[StopPartition]) -> dict[TopicPartition, KafkaStorageError]:
        """Stop partitions; return the errors of logs that could not be deleted."""
        await self._fetchers.unfollow([each.name for each in stopped])
        for each in stopped:
            self._stop_one(each)
            if each.delete:
                is_deleted = each.leader_epoch == LEADER_EPOCH_DURING_DELETE
                why = "its topic is deleted" if is_deleted else "its replicas are on other brokers"
                logger.info("deleting %s: %s", each.name, why)
        return await asyncio.to_thread(self._delete_all, {each.name: None for each in stopped if each.delete})

    def _fencing_error(self, name: TopicPartition, leader_epoch: int) -> FencedLeaderEpoch | None:
        replica = self._replicas.find(name)
        if replica is None or leader_epoch >= replica.partition.leader_epoch:
            return None
        return FencedLeaderEpoch(f"{name}: leader epoch {leader_epoch} is over, it is {replica.partition.leader_epoch}")

    def _doubled_leader_error(self, state: LeaderAndIsrPartitionState) -> FencedLeaderEpoch | None:
        """Return an error if the leader epoch has another leader, as after the store has lost the partition's state."""
        replica = self._replicas.find(state.name)
        if replica is None or replica.log.topic_id != state.topic_id:
            return None
        if replica.partition.leader_epoch != state.leader_epoch:
            return None
        leaders = {state.leader, replica.partition.leader} - {NO_LEADER}
        if len(leaders) < 2:
            return None
        return FencedLeaderEpoch(f"{state.name}: leader epoch {state.leader_epoch} has both leaders {sorted(leaders)}")

    def _is_moved(self, state: LeaderAndIsrPartitionState) -> bool:
        """Return whether the partition's present copying must end: leader or epoch change, or there is no replica."""
        replica = self._replicas.find(state.name)
        if replica is None:
            return True
        partition = replica.partition
        return (partition.leader, partition.leader_epoch) != (state.leader, state.leader_epoch)

    def _apply(
        self, state: LeaderAndIsrPartitionState, controller_epoch: int, opened: _OpenedReplica, config: TopicConfig
    ) -> bool:
        """Apply the state to the replica; return whether copying from another broker must start."""
        replica = self._replicas.put(state.name, opened.log, config, high_watermark=opened.high_watermark)
        partition = replica.partition
        before = (partition.is_leader, partition.leader_epoch)
        is_followed = False
        if state.leader == self._replicas.broker_id:
            effects = partition.become_leader(
                state,
                controller_epoch,
                log_end_offset=replica.log.log_end_offset,
                counted_end_offset=replica.log.counted_end_offset,
                now_ms=self._clock.monotonic_ms(),
            )
            self._replicas.isr_changes.carry_out(partition, effects)
            self._replicas.replicas_changed(partition)
        else:
            is_followed = partition.become_follower(state, controller_epoch) and state.leader != NO_LEADER
        self._replicas.leadership_changed(partition, before)
        return is_followed

    def _note_pending(self, names: Iterable[TopicPartition], errors: Mapping[TopicPartition, KafkaError]) -> None:
        failed = {name for name in names if isinstance(errors.get(name), KafkaStorageError)}
        pending = {name for name in failed if not self._logs.needs_restart(name)}
        self.pending.difference_update(names)
        self.pending |= pending
        if pending:
            self._on_pending()

    def _stop_one(self, stopped: StopPartition) -> None:
        if stopped.delete:
            self._replicas.drop(stopped.name)
        elif replica := self._replicas.find(stopped.name):
            before = (replica.partition.is_leader, replica.partition.leader_epoch)
            replica.partition.stop(stopped.leader_epoch)
            self._replicas.leadership_changed(replica.partition, before)

    # The methods below block: they run in a thread.

    def _open_all(
        self,
        states: Mapping[TopicPartition, LeaderAndIsrPartitionState],
        configs: Mapping[str, TopicConfig],
        overrides: Mapping[str, Overrides],
    ) -> dict[TopicPartition, _OpenedReplica | KafkaStorageError]:
        def open_one(state: LeaderAndIsrPartitionState) -> _OpenedReplica | KafkaStorageError:
            try:
                return self._open(state, configs[state.name.topic])
            except KafkaStorageError as error:
                if state.name not in self.pending:  # the controller asks again and again
                    logger.error("%s is offline: %s", state.name, error)
                return error

        opened = self._logs.in_threads(open_one, states.values())
        try:
            self._logs.checkpoint_new_logs()
        except KafkaStorageError as error:  # new logs are not listed yet, so they must not be used
            opened = [each if isinstance(each, KafkaStorageError) or each.log.size_bytes else error for each in opened]
        self._keep_topics(
            _topic_copies(states, overrides)
        )  # before leadership begins: other replicas are in sync only later
        return dict(zip(states, opened, strict=True))

    def _open(self, state: LeaderAndIsrPartitionState, config: TopicConfig) -> _OpenedReplica:
        log = self._logs.create(state.name, config, topic_id=state.topic_id, is_new=state.is_new)
        if log.config != config:
            log.configure(config)
        if log.must_flush:  # the leader counts flushed records only
            log.flush()
        committed = self._files.find(posixpath.dirname(log.folder), state.name)
        return _OpenedReplica(log, log.log_start_offset if committed is None else committed)

    def _delete_all(self, names: Collection[TopicPartition]) -> dict[TopicPartition, KafkaStorageError]:
        self._files.forget(names)
        errors = self._logs.delete_all(names)
        for name, error in errors.items():
            logger.error("%s could not be deleted: %s", name, error)
        return errors

    def _set_deleted_aside(self, names: Collection[TopicPartition]) -> None:
        self._files.forget(names)
        set_deleted_aside(self._logs, names, "and made again")

    def _is_here(self, name: TopicPartition) -> bool:
        try:
            return self._logs.get(name) is not None
        except KafkaStorageError:
            return True

    # Configuration and shutdown

    def update_configs(self, configs: Mapping[str, TopicConfig]) -> None:
        """Set the configurations of the logs and partitions of these topics."""
        self._logs.update_configs(configs)
        self._replicas.update_configs(configs)

    async def keep_topics(self, topics: Mapping[str, TopicCopy], known: Mapping[str, UUID] | None) -> None:
        """Store copies of topics. known: the ids of all topics, if copies of others may be dropped."""
        await asyncio.to_thread(self._keep_topics, topics, known)

    async def keep_brokers(self, brokers: Mapping[str, Overrides]) -> None:
        """Store copies of the broker keys that were set at run time, by node."""
        await asyncio.to_thread(self._logs.keep_brokers, brokers)

    def _keep_topics(self, topics: Mapping[str, TopicCopy], known: Mapping[str, UUID] | None = None) -> None:
        self._logs.keep_topics(topics, self._newest_change(), known)

    async def close(self) -> None:
        """Wait for running requests: the broker stops."""
        await self._executor.settled()

    # High watermarks on the disk

    def high_watermarks(self) -> HighWatermarks:
        """Return the high watermarks by log directory, for `write_high_watermarks`."""
        found: HighWatermarks = {folder: {} for folder in self._logs.dirs}
        self.add_high_watermarks(found, self._replicas)
        return found

    def add_high_watermarks(self, found: HighWatermarks, some: Iterable[Replica]) -> None:
        """Add the high watermarks of some replicas to those by log directory. Ignore replicas that are gone."""
        for replica in some:
            name = replica.partition.name
            if self._replicas.find(name) is replica:
                folder = replica.log.folder.rpartition("/")[0]  # posixpath takes several times as long
                found.setdefault(folder, {})[name] = replica.partition.high_watermark

    def write_high_watermarks(self, found: Mapping[str, Mapping[TopicPartition, int]]) -> None:
        """Write and flush one file per directory, unless it is up to date. Blocks."""
        self._files.write(found)

    def write_high_watermark(self, name: TopicPartition, folder: str) -> None:
        """Write a partition's high watermark to the checkpoint in `folder`, to which its log moves. Blocks."""
        high_watermark = self._replicas.find_high_watermark(name)
        if high_watermark is not None:
            self._files.write({folder: {name: high_watermark}})


def _topic_copies(
    states: Mapping[TopicPartition, LeaderAndIsrPartitionState], overrides: Mapping[str, Overrides]
) -> dict[str, TopicCopy]:
    """Return copies of the partitions' topics with the partitions of these states."""
    ids = {name.topic: state.topic_id for name, state in states.items()}
    partitions: dict[str, dict[int, LeaderAndIsrPartitionState]] = {topic: {} for topic in ids}
    for name, state in states.items():
        partitions[name.topic][name.partition] = state
    return {topic: TopicCopy.of(topic_id, overrides[topic], partitions[topic]) for topic, topic_id in ids.items()}
