"""A cluster in one thread: real brokers on a simulated loop, network, disk, clock and store. A seed decides everything.

Each node is a machine with a disk, a clock and an address. It runs one process after another, each a `Broker` of
`broker/node.py`. Faults are methods of the node, and act as on a real machine:

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
import json
import logging
import posixpath
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from uuid import UUID

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
from sparklog.cluster.memory import MemoryNodes, MemoryStore
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
from sparklog.testing.sim.checks.checker import Anomaly
from sparklog.testing.sim.clock import LoopClock
from sparklog.testing.sim.grpc import SimGrpcListener, UnaryCall
from sparklog.testing.sim.kafka import FramedRequest, SimKafkaListener, listeners
from sparklog.testing.sim.loop import PROCESS, SimLoop, SimProcess
from sparklog.testing.sim.network import SimNetwork, SimPeers
from sparklog.testing.sim.store import ObservedTree, ReplicaEnd, SqliteNodes, first_missing_offset
from sparklog.testing.sim.trace import Trace

SESSION_TIMEOUT_MS = 3_000
STORE_DELAY_S = 0.001
BASE_SETTINGS = {
    "request.log.slow.ms": "-1",  # it is measured by the clock on the wall
    "log.dirs": "/data",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.num.partitions": "2",
    "cluster.store.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.backoff.ms": "200",
    "replica.socket.timeout.ms": "2500",
    "controller.socket.timeout.ms": "2000",
    "controlled.shutdown.retry.backoff.ms": "500",
    "leader.imbalance.check.interval.seconds": "5",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "log.flush.start.offset.checkpoint.interval.ms": "3000",
}


REMAKEABLE = (OFFSET_INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT)
REMAKEABLE_CHECKPOINTS = (
    RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, COMPACTED, LEADER_EPOCHS, TOPIC_CONFIGS, META_PROPERTIES,
    CLEAN_SHUTDOWN,
)  # fmt: skip
MADE_ANEW = (META_PROPERTIES, CLEAN_SHUTDOWN)
"""These are only removed. A broker refuses to start with a `meta.properties` that it cannot read."""
DAMAGES = ("gone", "empty", "cut", "longer", "garbled")


_ADDRESS = re.compile("0x[0-9a-f]+")
"""Addresses of objects in log messages. They differ between runs, so the trace must not contain them."""


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
        """The logs that its last process closed at a clean stop."""
        self._cluster = cluster
        self._chance = cluster.stream(self.name)
        self._store: MemoryStore | None = None

    @property
    def is_running(self) -> bool:
        """Whether a process exists, be it starting, serving, paused or stopping."""
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
        self._store = MemoryStore(cluster.tree, call_soon=self._told_by_store)
        self.fs.watch_power(self._power_went)
        cluster.loop.create_task(self._boot(process, self._store), context=context)

    def _told_by_store(self, work: Callable[[], None]) -> None:
        delay_s = self._chance.expovariate(1 / STORE_DELAY_S)
        self._cluster.loop.call_later(delay_s, work, context=self.process.context())

    async def _boot(self, process: SimProcess, store: MemoryStore) -> None:
        cluster = self._cluster
        broker = Broker(
            parse_broker_config([Setting(name, raw, "") for name, raw in cluster.settings(self.broker_id).items()]),
            fs=self.fs, clock=self.clock, store=store,
            peers=SimPeers(cluster.network, self.name), random=random.Random(self._chance.random()),
            on_lost_store=lambda: self._told_to_start_again(process),
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
        except (StoreError, KafkaStorageError) as error:  # the store is out of reach, or the disk fails: expected
            cluster.trace.event(f"{self.name} gives up its start: {error!r}")
            process.kill()
            if isinstance(error, StoreError) and not isinstance(error, ConnectionLoss | SessionExpired):
                cluster.loop.create_task(self._start_later(process), context=cluster.context)
            return
        except Exception as error:  # noqa: BLE001 - any unexpected error is a finding
            cluster.report("start", f"{self.name} does not start: {error!r}", error)
            process.kill()
            return
        self.is_up = True
        cluster.trace.event(f"{self.name} is up")

    def _told_to_start_again(self, process: SimProcess) -> None:
        """Called when the broker says that its store has lost everything: a supervisor starts it again."""
        cluster = self._cluster
        cluster.trace.event(f"{self.name} says that the store has lost everything")
        cluster.loop.create_task(self._start_again(process), context=cluster.context)

    async def _start_later(self, process: SimProcess) -> None:
        """Start again what has given up because its store has lost everything, as a supervisor does."""
        await asyncio.sleep(self._chance.uniform(0, 1))
        if self.process is process:
            self.kill()  # its locks go with it
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
        self._gone()
        self.fs = self.fs.kill()
        self._cluster.network.break_connections(self.name)

    # Faults

    def kill(self) -> None:
        """Kill the process. The next one finds everything that it wrote."""
        self._cluster.trace.event(f"{self.name} is killed")
        self._gone()
        self.fs = self.fs.kill()
        self._cluster.network.break_connections(self.name)

    def cut_power(self) -> None:
        """Cut the power now. Unflushed data may be lost."""
        self._cluster.trace.event(f"{self.name} loses power")
        self._gone()
        self.fs = self.fs.crash(self._chance)

    def cut_power_soon(self, changes: int) -> None:
        """Cut the power in the middle of a change of the disk, after `changes` others."""
        self.fs.cut_power_after(changes, self._chance)

    def _power_went(self) -> None:
        self._cluster.trace.event(f"{self.name} loses power in the middle of a write")
        self._gone()
        self._cluster.loop.call_soon(self._find_after_power_cut, context=self._cluster.context)

    def _find_after_power_cut(self) -> None:
        self.fs = self.fs.crash(self._chance)

    def _gone(self) -> None:
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

        The kind of the file is chosen first: most files are indexes, and the others would hardly ever be damaged.
        size: selects the kind of damage, from 0 to below 1.
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
        self._put_damaged(path, data, how, self._chance.randint(0, len(data)))

    def damage_log(self, size: float) -> None:
        """Damage a random file of records in a way that a start can detect. The machine must be off.

        size: below 0.5, remove or empty a closed segment if there is one; else alter the unflushed end of the log.
        """
        logs = self._files_of_logs()
        if not logs:
            return
        log = self._chance.choice(logs)
        closed = [path for path in log[:-1] if self.fs.content(path)]
        if closed and size < 0.5:
            self._put_damaged(self._chance.choice(closed), b"", "gone" if size < 0.25 else "empty", 0)
        else:
            data = self.fs.content(log[-1])
            how = self._chance.choice(("cut", "longer", "garbled"))
            self._put_damaged(log[-1], data, how, self._chance.randint(self._flushed_to(log[-1]), len(data)))

    def _put_damaged(self, path: str, data: bytes, how: str, at: int) -> None:
        self._cluster.trace.event(f"{self.name}: {path} is {how}")
        noise = self._chance.randbytes(self._chance.randint(1, 64))
        found = {
            "gone": None, "empty": b"", "cut": data[:at], "longer": data + noise,
            "garbled": data[:at] + noise + data[at + len(noise) :],
        }  # fmt: skip
        self.fs.damage(path, found[how])

    def _files_of_logs(self) -> list[list[str]]:
        """Return the paths of each partition's segments, in the order of their offsets."""
        found: dict[str, list[str]] = {}
        for disk in self._cluster.disks:
            for path in self.fs.files(disk):
                folder, name = posixpath.split(path)
                is_record_file = (file := parse_name(name)) and file.suffix == LOG and not file.mark
                if is_record_file and not folder.endswith((DELETE_FOLDER, *FOREIGN_FOLDERS)):
                    found.setdefault(folder, []).append(path)
        return [sorted(paths) for _, paths in sorted(found.items())]

    def _flushed_to(self, path: str) -> int:
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

    _silent_store: MemoryStore | None = None

    def heal_store(self) -> None:
        """Connect the process to the store again, after `cut_store`."""
        store, self._silent_store = self._silent_store, None
        if store is not None and store is self._store and self.is_running:
            self._cluster.trace.event(f"{self.name} reaches the store again")
            store.reconnect()


class SimCluster:
    """The nodes, their network and their cluster store."""

    def __init__(
        self,
        loop: SimLoop,
        seed: int,
        *,
        brokers: int = 3,
        settings: dict[str, str] | None = None,
        has_sqlite: bool = False,
    ) -> None:
        self.loop = loop
        self.seed = seed
        self.trace = Trace(loop.time)
        self.tree = ObservedTree(SqliteNodes.create() if has_sqlite else MemoryNodes(), self._log_end)
        self.empty_store = self.tree.nodes.copy()
        self.context = SimProcess("world").context()
        self.context.run(PROCESS.set, None)
        self.network = SimNetwork(loop, self.stream("network"), self.trace)
        self.findings: list[Anomaly] = []
        """Anomalies that do not come from the clients' history."""
        self._settings = {**BASE_SETTINGS, **(settings or {})}
        self._settings.setdefault("default.replication.factor", str(min(3, brokers)))
        self._settings.setdefault("offsets.topic.replication.factor", str(min(3, brokers)))
        self.nodes = {number: SimNode(self, number) for number in range(brokers)}
        self.disks = self._settings["log.dirs"].split(",")

    def _log_end(self, name: TopicPartition, elected: int, former: int) -> int:
        """Return the offset below which the elected replica has all records of the others; 0 if that is not known.

        A dead process counts with the logs that it had.
        """
        found: dict[int, ReplicaEnd] = {}
        for node in self.nodes.values():
            if node.broker is None or not node.broker.has_services:
                return 0
            if log := node.find_log(name):
                is_led = node.broker.services.replicas.is_led(name) or node.broker_id == former
                found[node.broker_id] = ReplicaEnd(log.epochs, log.log_end_offset, node.is_running and is_led)
        return first_missing_offset(found.pop(elected), found.values()) if elected in found else 0

    def stream(self, name: str) -> random.Random:
        """Return a new generator for one part of the simulation, so that its use does not affect other parts."""
        return random.Random(f"{self.seed}/{name}")

    def settings(self, broker_id: int) -> dict[str, str]:
        """Return the configuration keys of a broker and their values."""
        return {**self._settings, "broker.id": str(broker_id), "broker.rack": f"rack-{broker_id % 2}"}

    def report(self, kind: str, text: str, error: BaseException | None = None) -> None:
        """Add a finding, with the lines of sparklog's code that raised `error`."""
        where = "".join(f"\n    {line}" for line in _source_lines(error)) if error else ""
        self.trace.event(f"{kind}: {text}")
        self.findings.append(Anomaly(kind, text + where))

    def take_findings(self) -> list[Anomaly]:
        """Return the findings since the last call, and remove them."""
        taken, self.findings = self.findings, []
        return taken

    async def start(self) -> None:
        """Start all nodes. Return when they are up, or after a finding if they are not up within 60 s."""
        for node in self.nodes.values():
            node.start()
        await self.wait_until(lambda: all(node.is_up for node in self.nodes.values()), 60, "the brokers are up")

    async def watch_leaders(self) -> None:
        """Report each two brokers that lead a partition in the same leader epoch. Never return."""
        known: dict[tuple[TopicPartition, UUID | None, int], str] = {}
        while True:
            for node in self.nodes.values():
                if node.is_running and node.broker is not None:
                    for replica in node.broker.replicas():
                        partition = replica.partition
                        if not partition.is_leader:
                            continue
                        place = partition.name, replica.log.topic_id, partition.leader_epoch
                        if known.setdefault(place, node.name) != node.name:
                            self.report("two leaders", f"{known[place]} and {node.name} both led {place}")
            await asyncio.sleep(0.05)

    async def wait_until(self, is_so: Callable[[], bool], timeout_s: float, what: str) -> bool:
        """Wait until `is_so()` holds. Return True then; after `timeout_s`, report a finding and return False.

        what: the condition in words.
        """
        deadline = self.loop.time() + timeout_s
        while not is_so():
            if self.loop.time() > deadline:
                self.report("liveness", f"not true within {timeout_s:.0f} s: {what}")
                return False
            await asyncio.sleep(0.1)
        return True

    def states(self) -> dict[TopicPartition, dict[str, Any]]:
        """Return each partition's state in the store: `replicas`, `is_moving`, `version` (-1: no state yet), `isr`.

        If there is a state, also its other fields, such as `leader` and `leader_epoch`.
        """
        found: dict[TopicPartition, dict[str, Any]] = {}
        for topic in self.tree.names("/brokers/topics") if self.tree.find("/brokers/topics") else ():
            for number, assigned in _assigned_replicas(self.tree.get(f"/brokers/topics/{topic}").data):
                node = self.tree.find(f"/brokers/topics/{topic}/partitions/{number}/state")
                state = _decode_json(node.data) if node else {}
                version = node.version if node else -1
                found[TopicPartition(topic, number)] = {"isr": [], **state, **assigned, "version": version}
        return found


def _kind_of_remakeable(name: str) -> str | None:
    """Return the kind of a file that a broker can rebuild, by its name; None for any other file."""
    if name in REMAKEABLE_CHECKPOINTS:
        return name
    if snapshot_of(name):
        return CHECKPOINT
    file = parse_name(name)
    return file.suffix if file and not file.mark and file.suffix in REMAKEABLE else None


@lru_cache(maxsize=1_000)
def _decode_json(data: bytes) -> dict[str, Any]:
    return dict(json.loads(data))


@lru_cache(maxsize=1_000)
def _assigned_replicas(data: bytes) -> tuple[tuple[int, dict[str, Any]], ...]:
    """Return each partition of a topic with its replicas, and with whether a reassignment is under way."""
    topic = json.loads(data)
    moving = {*topic.get("adding_replicas", {}), *topic.get("removing_replicas", {})}
    return tuple(
        (int(number), {"replicas": list(replicas), "is_moving": number in moving})
        for number, replicas in sorted(topic["partitions"].items(), key=lambda item: int(item[0]))
    )


def _source_lines(error: BaseException) -> list[str]:
    places, step = [], error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if "/sparklog/" in code.co_filename:
            name = code.co_filename.partition("/sparklog/")[2]
            places.append(f"{name}:{step.tb_lineno} {code.co_name}")
        step = step.tb_next
    cause = error.__cause__
    return places[-6:] + ([f"from {cause!r}", *_source_lines(cause)] if cause else [])


class _LogToTrace(logging.Handler):
    """Writes the brokers' log messages into the trace, and reports unexpected exceptions as findings.

    Errors of a failing disk or store are expected."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(logging.INFO)
        self._cluster = cluster

    def emit(self, record: logging.LogRecord) -> None:
        process = PROCESS.get()
        if process is None or process.is_dead:
            return
        text = _ADDRESS.sub("0x", record.getMessage())
        self._cluster.trace.note(f"{process.name} {record.levelname} {text}")
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, PowerCut | OSError | StoreError):
            self._cluster.report("exception", f"{process.name}: {text}: {error!r}", error)


@contextmanager
def logs_in_trace(cluster: SimCluster) -> Iterator[None]:
    """Return a context in which the log messages of `sparklog` go to the cluster's trace, and nowhere else."""
    logger = logging.getLogger("sparklog")
    handler = _LogToTrace(cluster)
    propagate, level = logger.propagate, logger.level
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
        logger.setLevel(level)
