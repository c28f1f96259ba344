"""Writes what is decided to the topic `__cluster_history` (`cluster/history.py`), so that the past can be queried.

A broker writes to a partition that it leads itself, so it needs nobody else for that; where it leads none, it waits
until it does. Nothing waits for the history: what was decided is taken down in memory, at most `MAX_WAITING` records of
it (the oldest go first), and written a little later. A broker that dies takes what it had not written with it.

Off unless `cluster.history.enable` says so; the topic is created with the first record.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from sparklog.base.clock import Clock
from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.cluster.history import HISTORY_TOPIC, Kind, encode_note
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.records.records import Record, write_records
from sparklog.replica.manager import ReplicaManager

MAX_WAITING = 10_000
MAX_AT_ONCE = 500
LINGER_S = 0.2
RETRY_BACKOFF_S = 1.0
ACKS_LEADER = 1
logger = logging.getLogger(__name__)


class ClusterHistory:
    """Of one broker. Used on its event loop."""

    def __init__(
        self,
        *,
        broker_id: int,
        is_enabled: bool,
        clock: Clock,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        create_topic: Callable[[], Awaitable[None]],
    ) -> None:
        """`create_topic` returns once it is there, whoever has created it; raises KafkaError."""
        self._broker_id = broker_id
        self._is_enabled = is_enabled
        self._clock = clock
        self._metadata = metadata
        self._replicas = replicas
        self._create_topic = create_topic
        self._waiting: deque[tuple[bytes, bytes, int]] = deque(maxlen=MAX_WAITING)
        self._has_work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def note(self, kind: Kind, name: TopicPartition | str = "", /, **details: Any) -> None:
        """Implements Note."""
        if self._is_enabled:
            now_ms = self._clock.time_ms()
            key, value = encode_note(kind, name, details, time_ms=now_ms, broker_id=self._broker_id)
            self._waiting.append((key, value, now_ms))
            self._has_work.set()

    def start(self) -> None:
        if self._is_enabled:
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Write what can be written at once."""
        if self._task:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            with suppress(KafkaError):
                self._write()

    async def _run(self) -> None:
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            await asyncio.sleep(LINGER_S)
            while self._waiting:
                try:
                    if HISTORY_TOPIC not in self._metadata:
                        await self._create_topic()
                    is_written = self._write()
                except KafkaError as error:
                    is_written = False
                    logger.info("the cluster's history waits: %s", error)
                if not is_written:
                    await asyncio.sleep(RETRY_BACKOFF_S)

    def _write(self) -> bool:
        """Whether some of what waits was written: to a partition that is led here. Raises KafkaError."""
        topic = self._metadata.find(HISTORY_TOPIC)
        names = [TopicPartition(HISTORY_TOPIC, number) for number in range(len(topic.partitions) if topic else 0)]
        led = next((name for name in names if self._replicas.is_led(name)), None)
        if led is None:
            return False
        taken = [self._waiting[place] for place in range(min(len(self._waiting), MAX_AT_ONCE))]
        records = [
            Record(offset=place, timestamp_ms=time_ms, key=key, value=value)
            for place, (key, value, time_ms) in enumerate(taken)
        ]
        self._replicas.append(led, write_records(records), acks=ACKS_LEADER)
        for _ in taken:
            self._waiting.popleft()
        return True
