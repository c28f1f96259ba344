"""A machine of a simulated cluster: a disk, a clock, an address, and the broker that runs on it.

A node runs one process after another, each a `Broker` of `broker/node.py`. Faults are methods of the node, and act as
on a real machine:

    kill        The process runs nothing any more. The next one finds everything that was written. Connections break.
    cut_power   Like `kill`, but only flushed data surely survives, and connections do not break.
    pause       The process does nothing until `resume`. Then it runs all overdue callbacks, in their order.
    expire      The cluster store ends the session of a healthy process.
    damage      Some index, snapshot or checkpoint of a stopped machine is removed or altered.
    damage_log  In a stopped machine's log, a closed segment is removed or emptied, or the unflushed end is altered.
    cut_store   The process cannot reach the cluster store. Its session ends after SESSION_TIMEOUT_MS.

The session of a killed process ends after about SESSION_TIMEOUT_MS. An unexpected error in a start or stop is a
finding.
"""

from __future__ import annotations

import asyncio
import errno
import posixpath
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sparklog.base.config import Setting, parse_broker_config
from sparklog.base.errors import (
    ConnectionLoss,
    KafkaStorageError,
    NetworkException,
    SessionExpired,
    StoreError,
)
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.node import Broker
from sparklog.cluster.memory import MemoryStore
from sparklog.log.directory.checkpoints import (
    CLEAN_SHUTDOWN,
    COMPACTED,
    HIGH_WATERMARKS,
    LOG_STARTS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    OffsetCheckpoint,
)
from sparklog.log.directory.topic_configs import TOPIC_CONFIGS
from sparklog.log.files import (
    CHECKPOINT,
    DELETE_FOLDER,
    FOREIGN_FOLDERS,
    LEADER_EPOCHS,
    LOG,
    OFFSET_INDEX,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    parse_name,
    snapshot_of,
)
from sparklog.log.log import Log
from sparklog.records.batch import iterate_headers
from sparklog.testing.memory_fs import MemoryFs, PowerCut
from sparklog.testing.sim.clock import LoopClock
from sparklog.testing.sim.grpc import SimGrpcListener, UnaryCall
from sparklog.testing.sim.kafka import FramedRequest, SimKafkaListener, listeners
from sparklog.testing.sim.loop import SimProcess
from sparklog.testing.sim.network import SimPeers

if TYPE_CHECKING:
    from sparklog.testing.sim.cluster import SimCluster

SESSION_TIMEOUT_MS = 3_000
STORE_DELAY_S = 0.001
REMAKEABLE = (OFFSET_INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT)
REMAKEABLE_CHECKPOINTS = (
    RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, COMPACTED, LEADER_EPOCHS, TOPIC_CONFIGS, META_PROPERTIES,
    CLEAN_SHUTDOWN,
)  # fmt: skip
MADE_ANEW = (META_PROPERTIES, CLEAN_SHUTDOWN)
"""Files that are removed, not altered: a broker refuses to start with a `meta.properties` that it cannot read."""
DAMAGES = ("gone", "empty", "cut", "longer", "garbled")


class SimNode:
    """One machine, and the broker that runs on it."""

    def __init__(self, cluster: SimCluster, broker_id: int) -> None:
        self.broker_id = broker_id
        self.name = f"broker-{broker_id}:1"
        self.fs = MemoryFs()
        self.clock = LoopClock(cluster.loop)
        self.process = SimProcess(self.name)
        self.process.kill()
        self.broker: Broker | None = None
        self.is_up = False
        self.starts = 0
        self._failing_disk = ""
        self._stopped_logs: list[Log] = []
        """The logs that the last process closed at a clean stop."""
        self._cluster = cluster
        self._chance = cluster.stream(self.name)
        self._store: MemoryStore | None = None
        self._silent_store: MemoryStore | None = None
        """The store that the process cannot reach."""

    @property
    def is_running(self) -> bool:
        """Whether a process exists: starting, serving, paused or stopping."""
        return not self.process.is_dead

    def find_log(self, name: TopicPartition) -> Log | None:
        """Return the partition's log in the last process, dead or alive; None if the process opened no such log."""
        if self.broker is None or not self.broker.has_services:
            return None
        logs = (*self.broker.services.logs, *self._stopped_logs)
        return next((log for log in logs if log.partition == name), None)

    def start(self) -> None:
        """Start a process if none runs, and return at once. `is_up` becomes true when the broker serves."""
        if self.is_running:
            return  # another fault has already restarted it
        cluster = self._cluster
        self.starts += 1
        self._stopped_logs = []
        cluster.trace.event(f"{self.name} starts")
        self.process = process = SimProcess(self.name, random.Random(self._chance.random()))
        context = process.context()
        self._store = MemoryStore(cluster.tree, call_soon=self._call_from_store)
        self.fs.watch_power(self._lose_power)
        cluster.loop.create_task(self._boot(process, self._store), context=context)

    def _call_from_store(self, work: Callable[[], None]) -> None:
        delay_s = self._chance.expovariate(1 / STORE_DELAY_S)
        self._cluster.loop.call_later(delay_s, work, context=self.process.context())

    async def _boot(self, process: SimProcess, store: MemoryStore) -> None:
        cluster = self._cluster
        broker = Broker(
            parse_broker_config([Setting(name, raw, "") for name, raw in cluster.settings(self.broker_id).items()]),
            fs=self.fs, clock=self.clock, store=store,
            peers=SimPeers(cluster.network, self.name), random=random.Random(self._chance.random()),
            on_lost_store=lambda: self._restart_without_store(process),
        )  # fmt: skip

        async def serve(api: Api[Any, Any], request: Any) -> Any:
            if not broker.has_services:
                raise NetworkException(f"{self.name} does not listen yet")
            if isinstance(request, UnaryCall):
                return await grpc_listener.serve(request)
            if isinstance(request, FramedRequest):
                return await kafka_listener.serve(request)
            return await broker.serve(api, request)

        grpc_listener, kafka_listener = SimGrpcListener(broker), SimKafkaListener(broker)
        cluster.network.attach(self.name, process, serve)
        self.broker = broker
        try:
            await broker.start(self.name, listeners(self.name))
        except PowerCut:
            return
        except Exception as error:  # noqa: BLE001 - any unexpected error is a finding
            if _may_end_a_start(error):
                cluster.trace.event(f"{self.name} gives up its start: {error!r}")
            else:
                cluster.report("start", f"{self.name} does not start: {error!r}", error)
            self._exit()
            if isinstance(error, StoreError) and not isinstance(error, ConnectionLoss | SessionExpired):
                cluster.loop.create_task(self._start_later(process), context=cluster.context)
            return
        self.is_up = True
        cluster.trace.event(f"{self.name} is up")

    def _restart_without_store(self, process: SimProcess) -> None:
        """Restart the broker, as a supervisor does, after it has reported that its store has lost everything."""
        cluster = self._cluster
        cluster.trace.event(f"{self.name} says that the store has lost everything")
        cluster.loop.create_task(self._start_again(process), context=cluster.context)

    async def _start_later(self, process: SimProcess) -> None:
        """Restart, as a supervisor does, a process that gave up its start because its store has lost everything."""
        await asyncio.sleep(self._chance.uniform(0, 1))
        if self.process is process:
            self.start()

    async def _start_again(self, process: SimProcess) -> None:
        await asyncio.sleep(self._chance.uniform(0, 1))
        if self.process is process and not process.is_dead:
            if self.is_up and not process.is_paused:
                await self.stop()
            else:
                self.kill()
            self.start()

    async def stop(self) -> None:
        """Stop the broker cleanly, if it is up. Report an error or a stop of over a minute; end the process anyway."""
        broker, process, loop = self.broker, self.process, self._cluster.loop
        if broker is None or not self.is_up:
            return
        self._cluster.trace.event(f"{self.name} is asked to stop")
        self.is_up = False
        self._stopped_logs = list(broker.services.logs)
        task = process.context().run(lambda: loop.create_task(broker.stop()))
        await asyncio.wait([task], timeout=60)
        if process.is_dead:
            return
        if not task.done():
            self._cluster.report("stop", f"{self.name} does not stop within a minute")
        elif task.exception():
            self._cluster.report("stop", f"{self.name} does not stop well: {task.exception()!r}", task.exception())
        self._exit()

    # Faults

    def kill(self) -> None:
        """Kill the process. The next one finds everything that it wrote."""
        self._cluster.trace.event(f"{self.name} is killed")
        self._exit()

    def cut_power(self) -> None:
        """Cut the power now. Unflushed data may be lost."""
        self._cluster.trace.event(f"{self.name} loses power")
        self._end_process()
        self.fs = self.fs.crash(self._chance)

    def cut_power_soon(self, changes: int) -> None:
        """Cut the power in the middle of a change of the disk, after `changes` others."""
        self.fs.cut_power_after(changes, self._chance)

    def _lose_power(self) -> None:
        self._cluster.trace.event(f"{self.name} loses power in the middle of a write")
        self._end_process()
        self._cluster.loop.call_soon(self._crash_disk, context=self._cluster.context)

    def _crash_disk(self) -> None:
        self.fs = self.fs.crash(self._chance)

    def _exit(self) -> None:
        """End the process. The system frees its locks and closes its connections."""
        self._end_process()
        self.fs = self.fs.kill()
        self._cluster.network.break_connections(self.name)

    def _end_process(self) -> None:
        self.process.kill()
        self.is_up = False
        if self._store:
            self._store.abandon()
            self._expire_later(self._store.session_id)

    def _expire_later(self, session_id: int) -> None:
        cluster = self._cluster
        delay_s = SESSION_TIMEOUT_MS * self._chance.uniform(0.7, 1.3) / 1000
        cluster.loop.call_later(delay_s, cluster.tree.expire, session_id, context=cluster.context)

    def pause(self) -> None:
        """Pause the process. Its session ends if it is still paused after SESSION_TIMEOUT_MS."""
        self._cluster.trace.event(f"{self.name} is paused")
        process, store = self.process, self._store
        process.pause()
        if store:
            session = store.session_id

            def silent_too_long() -> None:
                if process.is_paused:
                    self._cluster.tree.expire(session)

            self._cluster.loop.call_later(SESSION_TIMEOUT_MS / 1000, silent_too_long, context=self._cluster.context)

    def resume(self) -> None:
        """Continue a paused process."""
        if self.process.is_paused:
            self._cluster.trace.event(f"{self.name} goes on")
            self.process.resume(self._cluster.loop)

    def damage(self, size: float) -> None:
        """Damage a random file that can be rebuilt. The machine must be off.

        The kind of the file is chosen first. Most files are indexes, so a choice among all files would hardly ever
        damage another kind.

        size: selects the kind of damage, from 0 to below 1
        """
        paths: dict[str, list[str]] = {}
        for disk in self._cluster.disks:
            for path in self.fs.files(disk):
                if kind := _kind_of_remakeable(posixpath.basename(path)):
                    paths.setdefault(kind, []).append(path)
        if not paths:
            return
        kind = self._chance.choice(sorted(paths))
        path = self._chance.choice(paths[kind])
        how = "gone" if kind in MADE_ANEW else DAMAGES[int(size * len(DAMAGES))]
        data = self.fs.content(path)
        self._write_damaged(path, data, how, self._chance.randint(0, len(data)))

    def damage_log(self, size: float) -> None:
        """Damage a random file of records in a way that a start can detect. The machine must be off.

        size: below 0.5, remove or empty a closed segment if there is one; otherwise alter the log's unflushed end
        """
        logs = self._log_files()
        if not logs:
            return
        log = self._chance.choice(logs)
        closed = [path for path in log[:-1] if self.fs.content(path)]
        if closed and size < 0.5:
            self._write_damaged(self._chance.choice(closed), b"", "gone" if size < 0.25 else "empty", 0)
        else:
            data = self.fs.content(log[-1])
            how = self._chance.choice(("cut", "longer", "garbled"))
            self._write_damaged(log[-1], data, how, self._chance.randint(self._trusted_size(log[-1]), len(data)))

    def _write_damaged(self, path: str, data: bytes, how: str, at: int) -> None:
        self._cluster.trace.event(f"{self.name}: {path} is {how}")
        noise = self._chance.randbytes(self._chance.randint(1, 64))
        found = {
            "gone": None, "empty": b"", "cut": data[:at], "longer": data + noise,
            "garbled": data[:at] + noise + data[at + len(noise) :],
        }  # fmt: skip
        self.fs.damage(path, found[how])

    def _log_files(self) -> list[list[str]]:
        """Return the paths of each partition's segments, in the order of their offsets."""
        found: dict[str, list[str]] = {}
        for disk in self._cluster.disks:
            for path in self.fs.files(disk):
                folder, name = posixpath.split(path)
                is_record_file = (file := parse_name(name)) and file.suffix == LOG and not file.mark
                if is_record_file and not folder.endswith((DELETE_FOLDER, *FOREIGN_FOLDERS)):
                    found.setdefault(folder, []).append(path)
        return [sorted(paths) for _, paths in sorted(found.items())]

    def _trusted_size(self, path: str) -> int:
        """Return the position, in bytes, up to which a start trusts a log's last segment: its recovery point."""
        disk, folder = posixpath.split(posixpath.dirname(path))
        points = OffsetCheckpoint(self.fs, f"{disk}/{RECOVERY_POINTS}").read()
        recovery_point = points.get(TopicPartition.parse(folder), 0)
        position = 0
        for at, header in iterate_headers(self.fs.content(path)):
            if header.base_offset < recovery_point:
                position = at + header.size
        return position

    @property
    def offline(self) -> list[TopicPartition]:
        """The partitions whose logs the broker could not open."""
        return sorted(self.broker.services.replicas.offline) if self.broker and self.is_up else []

    @property
    def needs_restart(self) -> bool:
        """Whether some logs are offline until the broker restarts."""
        offline = self.offline
        return self.broker is not None and any(self.broker.services.logs.needs_restart(name) for name in offline)

    def move_away(self, names: Sequence[TopicPartition]) -> None:
        """Rename the partitions' folders, so that the next start ignores them. The machine must be off."""
        for name in names:
            self._cluster.trace.event(f"{self.name}: the folder of {name} is moved away")
            for disk in self._cluster.disks:
                if self.fs.exists(f"{disk}/{name}"):
                    self.fs.rename(f"{disk}/{name}", f"{disk}/{name}.{self.starts}-stray")

    def fail_disk(self, disk: str, error_number: int) -> None:
        """Let a disk, one of `log.dirs`, fail with this error until `repair_disk`. Repair any other one first."""
        self.repair_disk()
        self._cluster.trace.event(f"{self.name}: its disk {disk} fails with {errno.errorcode[error_number]}")
        self.fs.fail_under(disk, error_number)
        self._failing_disk = disk

    def repair_disk(self) -> None:
        """Repair the disk that fails, if any."""
        if self._failing_disk:
            self._cluster.trace.event(f"{self.name}: its disk {self._failing_disk} works")
            self.fs.repair(self._failing_disk)
            self._failing_disk = ""

    def expire(self) -> None:
        """End the running process's session in the cluster store."""
        if self._store and self.is_running:
            self._cluster.trace.event(f"{self.name}: the session of its store ends")
            self._cluster.tree.expire(self._store.session_id)

    def lose_answer(self) -> None:
        """Let the store make the next write, but tell the writer that the outcome is unknown."""
        if self._store and self.is_running:
            self._cluster.trace.event(f"{self.name} will lose an answer of the store")
            self._store.lose_next_answer()

    def cut_store(self) -> None:
        """Cut the process off from the store. Its session ends after SESSION_TIMEOUT_MS without `heal_store`."""
        store = self._store
        if store is None or not self.is_running:
            return
        self._cluster.trace.event(f"{self.name} cannot reach the store")
        store.disconnect()
        self._silent_store = store

        def silent_too_long(session: int) -> None:
            if self._silent_store is store:
                self._cluster.tree.expire(session)

        self._cluster.loop.call_later(
            SESSION_TIMEOUT_MS / 1000, silent_too_long, store.session_id, context=self._cluster.context
        )

    def heal_store(self) -> None:
        """Connect the process to the store again, after `cut_store`."""
        store, self._silent_store = self._silent_store, None
        if store is not None and store is self._store and self.is_running:
            self._cluster.trace.event(f"{self.name} reaches the store again")
            store.reconnect()


def _may_end_a_start(error: Exception) -> bool:
    """Return whether the store is out of reach, the disk fails, or there are no file descriptors."""
    return isinstance(error, StoreError | KafkaStorageError) or getattr(error, "errno", None) == errno.EMFILE


def _kind_of_remakeable(name: str) -> str | None:
    """Return the kind of a file that a broker can rebuild, by its name; None for any other file."""
    if name in REMAKEABLE_CHECKPOINTS:
        return name
    if snapshot_of(name):
        return CHECKPOINT
    file = parse_name(name)
    return file.suffix if file and not file.mark and file.suffix in REMAKEABLE else None
