"""A cluster in one thread: real brokers on a simulated loop, network, disk, clock and store. A seed decides everything.

The nodes (node.py) are machines with a broker each. The cluster has their network and store, and collects findings.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from uuid import UUID

from sparklog.base.errors import StoreError
from sparklog.base.ids import TopicPartition
from sparklog.cluster.memory import MemoryNodes
from sparklog.testing.memory_fs import PowerCut
from sparklog.testing.sim.checks.checker import Anomaly
from sparklog.testing.sim.loop import PROCESS, SimLoop, SimProcess
from sparklog.testing.sim.network import SimNetwork
from sparklog.testing.sim.node import SESSION_TIMEOUT_MS, SimNode
from sparklog.testing.sim.store import ObservedTree, ReplicaEnd, SqliteNodes, first_missing_offset
from sparklog.testing.sim.trace import Trace

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


_ADDRESS = re.compile("0x[0-9a-f]+")
"""Addresses of objects in log messages. They differ between runs, so they must not be in the trace."""


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
        """Report two brokers that lead a partition in the same leader epoch. Never returns."""
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

        A partition with a state has its other fields too, such as `leader` and `leader_epoch`.
        """
        found: dict[TopicPartition, dict[str, Any]] = {}
        for topic in self.tree.names("/brokers/topics") if self.tree.find("/brokers/topics") else ():
            for number, assigned in _assigned_replicas(self.tree.get(f"/brokers/topics/{topic}").data):
                node = self.tree.find(f"/brokers/topics/{topic}/partitions/{number}/state")
                state = _decode_json(node.data) if node else {}
                version = node.version if node else -1
                found[TopicPartition(topic, number)] = {"isr": [], **state, **assigned, "version": version}
        return found


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

    Errors of a failing disk or store are expected.
    """

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
