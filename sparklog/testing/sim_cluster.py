"""A whole cluster in one thread: real brokers on a simulated loop, network, disk, clock and store, decided by a seed.

Each node is a machine with a disk, a clock and an address. One process after the other runs on it: a `Broker`, as
`broker/node.py` composes it. Faults are methods, with the effects that they have on a real machine:

    kill        the process ends; the next one finds its page cache; its connections break
    cut_power   the same, but only flushed bytes are sure to survive, and connections stay silent
    pause       the process does nothing until `resume`; then it does all that was due, before it reads a clock
    expire      the cluster store ends the session of a healthy process
    damage      damages an index, a snapshot or a checkpoint of a machine that is off
    damage_log  damages records of a machine that is off: removes or empties a closed segment, or cuts or garbles
                unflushed bytes
    cut_store   the process cannot reach the cluster store, and its session expires

A session expires `SESSION_TIMEOUT_MS` after the last sign of its process. A start that fails is reported as an anomaly.
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
from sparklog.base.errors import KafkaStorageError, NetworkException, StoreError
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.node import Broker
from sparklog.cluster.memory import MemoryNodes, MemoryStore
from sparklog.log.directory.checkpoints import COMPACTED, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, OffsetCheckpoint
from sparklog.log.directory.topic_configs import TOPIC_CONFIGS
from sparklog.log.files import (
    DELETE_FOLDER,
    FOREIGN_FOLDERS,
    LEADER_EPOCHS,
    LOG,
    OFFSET_INDEX,
    SNAPSHOT,
    TIME_INDEX,
    parse_name,
)
from sparklog.log.log import Log
from sparklog.records.batch import iterate_headers
from sparklog.testing.memory_fs import MemoryFs, PowerCut
from sparklog.testing.sim_checker import Anomaly
from sparklog.testing.sim_clock import LoopClock
from sparklog.testing.sim_elections import Ended, ObservedTree, kept_end
from sparklog.testing.sim_grpc import Called, SimGrpcListener
from sparklog.testing.sim_kafka import Framed, SimKafkaListener, listeners
from sparklog.testing.sim_loop import PROCESS, SimLoop, SimProcess
from sparklog.testing.sim_network import SimNetwork, SimPeers
from sparklog.testing.sim_store import SqliteNodes
from sparklog.testing.sim_trace import Trace

SESSION_TIMEOUT_MS = 3_000
STORE_DELAY_S = 0.001
BASE_SETTINGS = {
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


REMAKEABLE = (OFFSET_INDEX, TIME_INDEX, SNAPSHOT)
REMAKEABLE_CHECKPOINTS = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, COMPACTED, LEADER_EPOCHS, TOPIC_CONFIGS)
DAMAGES = ("gone", "empty", "cut", "longer", "garbled")


_ADDRESS = re.compile("0x[0-9a-f]+")
"""The address of an object in memory, which differs between processes."""


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
        """The logs that its last process has closed."""
        self._cluster = cluster
        self._chance = cluster.stream(self.name)
        self._store: MemoryStore | None = None

    @property
    def is_running(self) -> bool:
        return not self.process.is_dead

    def find_log(self, name: TopicPartition) -> Log | None:
        """Return the log of its last process, also of a dead one. None: there is none, or no process has opened it."""
        if self.broker is None or not hasattr(self.broker, "services"):
            return None
        logs = (*self.broker.services.logs, *self._stopped_logs)
        return next((log for log in logs if log.partition == name), None)

    def start(self) -> None:
        """Start a process, unless one runs; `is_up` says when it serves."""
        if self.is_running:
            return  # another restart was faster
        cluster = self._cluster
        self.starts += 1
        self._stopped_logs = []
        cluster.trace.event(f"{self.name} starts")
        self.process = process = SimProcess(self.name, random.Random(self._chance.random()))
        context = process.context()
        self._store = MemoryStore(cluster.tree, call_soon=self._told_by_store)
        self.fs.on_power_cut = self._power_went
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
        )  # fmt: skip

        async def serve(api: Api[Any, Any], request: Any) -> Any:
            if not hasattr(broker, "services"):
                raise NetworkException(f"{self.name} does not listen yet")
            if isinstance(request, Called):
                return await grpc_listener.serve(request)
            if isinstance(request, Framed):
                return await kafka_listener.serve(request)
            return await broker.serve(api, request)

        grpc_listener, kafka_listener = SimGrpcListener(broker), SimKafkaListener(broker)
        cluster.network.attach(self.name, process, serve)
        self.broker = broker
        try:
            await broker.start(self.name, listeners(self.name))
        except PowerCut:
            return
        except (StoreError, KafkaStorageError) as error:  # the store was unreachable for too long, or the disk fails
            cluster.trace.event(f"{self.name} gives up its start: {error!r}")
            process.kill()
            return
        except Exception as error:  # noqa: BLE001 - any error is an anomaly
            cluster.report("start", f"{self.name} does not start: {error!r}", error)
            process.kill()
            return
        self.is_up = True
        cluster.trace.event(f"{self.name} is up")

    async def stop(self) -> None:
        """Stop cleanly; the process has ended afterwards, also if that failed."""
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
        self._cluster.trace.event(f"{self.name} is killed")
        self._gone()
        self.fs = self.fs.kill()
        self._cluster.network.break_connections(self.name)

    def cut_power(self) -> None:
        self._cluster.trace.event(f"{self.name} loses power")
        self._gone()
        self.fs = self.fs.crash(self._chance)

    def cut_power_soon(self, changes: int) -> None:
        """Cut the power in the middle of one of the disk's next `changes` changes."""
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
        if self.process.is_paused:
            self._cluster.trace.event(f"{self.name} goes on")
            self.process.resume(self._cluster.loop)

    def damage(self, size: float) -> None:
        """Damage a file that can be rebuilt from the records. The machine is off; `size` chooses the damage."""
        paths = [
            path
            for disk in self._cluster.disks
            for path in self.fs.files(disk)
            if path.endswith(REMAKEABLE) or posixpath.basename(path) in REMAKEABLE_CHECKPOINTS
        ]
        if not paths:
            return
        path = self._chance.choice(paths)
        data = self.fs.content(path)
        self._put_damaged(path, data, DAMAGES[int(size * len(DAMAGES))], self._chance.randint(0, len(data)))

    def damage_log(self, size: float) -> None:
        """Damage a file of records, so that a start can notice it. The machine is off; `size` chooses the damage."""
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
        """Return the paths of the segments of each partition."""
        found: dict[str, list[str]] = {}
        for disk in self._cluster.disks:
            for path in self.fs.files(disk):
                folder, name = posixpath.split(path)
                is_record_file = (file := parse_name(name)) and file.suffix == LOG and not file.mark
                if is_record_file and not folder.endswith((DELETE_FOLDER, *FOREIGN_FOLDERS)):
                    found.setdefault(folder, []).append(path)
        return [sorted(paths) for _, paths in sorted(found.items())]

    def _flushed_to(self, path: str) -> int:
        """Return the size in bytes of the batches below the recovery point in the last segment."""
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
        """Return the partitions whose logs the process could not open."""
        return sorted(self.broker.services.replicas.offline) if self.broker and self.is_up else []

    def move_away(self, names: Sequence[TopicPartition]) -> None:
        """Move the folders of partitions out of the log directories. The machine is off."""
        for name in names:
            self._cluster.trace.event(f"{self.name}: the folder of {name} is moved away")
            for disk in self._cluster.disks:
                if self.fs.exists(f"{disk}/{name}"):
                    self.fs.rename(f"{disk}/{name}", f"{disk}/{name}.{self.starts}-stray")

    def fail_disk(self, disk: str, error_number: int) -> None:
        self.repair_disk()
        self._cluster.trace.event(f"{self.name}: its disk {disk} fails with {errno.errorcode[error_number]}")
        self.fs.fail_under(disk, error_number)
        self._failing_disk = disk

    def repair_disk(self) -> None:
        if self._failing_disk:
            self._cluster.trace.event(f"{self.name}: its disk {self._failing_disk} works")
            self.fs.repair(self._failing_disk)
            self._failing_disk = ""

    def expire(self) -> None:
        if self._store and self.is_running:
            self._cluster.trace.event(f"{self.name}: the session of its store ends")
            self._cluster.tree.expire(self._store.session_id)

    def lose_answer(self) -> None:
        """Carry out the next write to the store, but tell its writer that it may not have been."""
        if self._store and self.is_running:
            self._cluster.trace.event(f"{self.name} will lose an answer of the store")
            self._store.lose_next_answer()

    def cut_store(self) -> None:
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
        store, self._silent_store = self._silent_store, None
        if store is not None and store is self._store and self.is_running:
            self._cluster.trace.event(f"{self.name} reaches the store again")
            store.reconnect()


class SimCluster:
    """The nodes, their network and their store. Create it inside a SimLoop's `run`."""

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
        self.tree = ObservedTree(SqliteNodes() if has_sqlite else MemoryNodes(), self._log_end)
        self.empty_store = self.tree.nodes.copy()
        self.context = SimProcess("world").context()
        self.context.run(PROCESS.set, None)
        self.network = SimNetwork(loop, self.stream("network"), self.trace)
        self.findings: list[Anomaly] = []
        """Anomalies that the histories of clients do not show."""
        self._settings = {**BASE_SETTINGS, **(settings or {})}
        self._settings.setdefault("default.replication.factor", str(min(3, brokers)))
        self._settings.setdefault("offsets.topic.replication.factor", str(min(3, brokers)))
        self.nodes = {number: SimNode(self, number) for number in range(brokers)}
        self.disks = self._settings["log.dirs"].split(",")

    def _log_end(self, name: TopicPartition, elected: int, former: int) -> int:
        """Return the end of what the elected replica shares with the others; 0 if its log cannot be seen.

        The log of a dead process counts as it was.
        """
        found: dict[int, Ended] = {}
        for node in self.nodes.values():
            if node.broker is None or not hasattr(node.broker, "services"):
                return 0
            if log := node.find_log(name):
                is_led = node.broker.services.replicas.is_led(name) or node.broker_id == former
                found[node.broker_id] = Ended(log.epochs, log.log_end_offset, node.is_running and is_led)
        return kept_end(found.pop(elected), found.values()) if elected in found else 0

    def stream(self, name: str) -> random.Random:
        """Return a random generator of its own for each part, so that parts do not influence each other."""
        return random.Random(f"{self.seed}/{name}")

    def settings(self, broker_id: int) -> dict[str, str]:
        return {**self._settings, "broker.id": str(broker_id), "broker.rack": f"rack-{broker_id % 2}"}

    def report(self, kind: str, text: str, error: BaseException | None = None) -> None:
        """Record an anomaly, with the place that raised the error."""
        where = "".join(f"\n    {line}" for line in _places(error)) if error else ""
        self.trace.event(f"{kind}: {text}")
        self.findings.append(Anomaly(kind, text + where))

    async def start(self) -> None:
        """Start all nodes, and wait until all serve."""
        for node in self.nodes.values():
            node.start()
        await self.wait_until(lambda: all(node.is_up for node in self.nodes.values()), 60, "the brokers are up")

    async def watch_leaders(self) -> None:
        """Until cancelled, report two leaders of a partition in the same epoch."""
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
        """Wait until the condition holds, and return whether it did in time. A timeout is reported as an anomaly."""
        deadline = self.loop.time() + timeout_s
        while not is_so():
            if self.loop.time() > deadline:
                self.report("liveness", f"not true within {timeout_s:.0f} s: {what}")
                return False
            await asyncio.sleep(0.1)
        return True

    def states(self) -> dict[TopicPartition, dict[str, Any]]:
        """Return each partition's state in the store: leader, isr, leader_epoch, replicas and version."""
        found: dict[TopicPartition, dict[str, Any]] = {}
        for topic in self.tree.names("/brokers/topics") if self.tree.find("/brokers/topics") else ():
            for number, assigned in _assigned(self.tree.get(f"/brokers/topics/{topic}").data):
                node = self.tree.find(f"/brokers/topics/{topic}/partitions/{number}/state")
                state = _decoded(node.data) if node else {}
                version = node.version if node else -1
                found[TopicPartition(topic, number)] = {"isr": [], **state, **assigned, "version": version}
        return found


@lru_cache(maxsize=1_000)
def _decoded(data: bytes) -> dict[str, Any]:
    return dict(json.loads(data))


@lru_cache(maxsize=1_000)
def _assigned(data: bytes) -> tuple[tuple[int, dict[str, Any]], ...]:
    """Return the replicas of each partition of a topic, and whether it is being reassigned."""
    topic = json.loads(data)
    moving = {*topic.get("adding_replicas", {}), *topic.get("removing_replicas", {})}
    return tuple(
        (int(number), {"replicas": list(replicas), "is_moving": number in moving})
        for number, replicas in sorted(topic["partitions"].items(), key=lambda item: int(item[0]))
    )


def _places(error: BaseException) -> list[str]:
    places, step = [], error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if "/sparklog/" in code.co_filename:
            name = code.co_filename.partition("/sparklog/")[2]
            places.append(f"{name}:{step.tb_lineno} {code.co_name}")
        step = step.tb_next
    cause = error.__cause__
    return places[-6:] + ([f"from {cause!r}", *_places(cause)] if cause else [])


class _LogToTrace(logging.Handler):
    """Writes the brokers' logs to the trace, and reports unexpected exceptions.

    Errors of a disk or a store are expected."""

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
    """Send all logs inside the block to the trace, and nowhere else."""
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
