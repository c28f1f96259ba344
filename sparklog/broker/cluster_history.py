"""Writes this broker's decisions to the topic `__cluster_history` (`cluster/history.py`).

    note     buffer the event in memory; the caller does not wait. At most `MAX_WAITING` records are buffered. Beyond
             that the oldest is dropped, which is counted and recorded in the history itself
    send     send one batch at a time to the leader of the topic's only partition, here or on another broker
             (AppendHistory), with acks=all. The batch carries sequence numbers of a producer id that this broker
             allocates for this run, so a batch that is resent after a lost answer is written once
    fail     no leader, no topic yet, no store: retry every `RETRY_BACKOFF_S`. A batch that the topic always refuses is
             dropped and counted, as it would block all later ones. If the leader does not know the sequence numbers,
             as an unclean election has truncated the log, the broker takes a new producer id and numbers from 0
    flush    a stopping broker waits for its records to be written, for at most `FLUSH_WITHIN_S`, while it still learns
             of new leaders: a broker that was the controller has just moved the history's leader, too
    stop     send the records that are not written yet, for at most another `FLUSH_WITHIN_S`

A broker that crashes loses the records it has not sent: normally those of the last moments (`LINGER_S`).

Enabled by `cluster.history.enable`. The topic is created with the first record, once there are as many brokers as its
replication factor needs. It has min.insync.replicas=1: it is needed most when other replicas are out of sync.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

from msgspec import Struct

from sparklog.base.clock import Clock
from sparklog.base.errors import (
    CorruptRecord,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    LeaderNotAvailable,
    MessageTooLarge,
    OutOfOrderSequenceNumber,
    RecordListTooLarge,
    SparklogError,
    UnknownProducerId,
)
from sparklog.base.ids import TopicPartition
from sparklog.cluster.history import HISTORY, HISTORY_TOPIC, AppendHistory, HistoryKind, encode_note
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.peers import Peers
from sparklog.records.records import Record, write_records

MAX_WAITING = 10_000
MAX_AT_ONCE = 500
MAX_BYTES_AT_ONCE = 256 << 10
LINGER_S = 0.2
RETRY_BACKOFF_S = 1.0
APPEND_TIMEOUT_MS = 5_000
ANSWER_WITHIN_MS = 10_000
FLUSH_WITHIN_S = 2.0
UNKNOWN_SEQUENCE = (InvalidProducerEpoch, OutOfOrderSequenceNumber, UnknownProducerId)
REFUSED_FOR_GOOD = (CorruptRecord, InvalidRecord, InvalidTimestamp, MessageTooLarge, RecordListTooLarge)
logger = logging.getLogger(__name__)


class _HistoryRecord(NamedTuple):
    key: bytes
    value: bytes
    time_ms: int


class _HistoryBatch(Struct, frozen=True, kw_only=True):
    """A batch being sent; each retry sends the same bytes."""

    notes: tuple[_HistoryRecord, ...]
    producer_id: int
    first_number: int

    def encode(self) -> bytes:
        records = [
            Record(
                offset=at, timestamp_ms=note.time_ms, key=note.key, value=note.value, sequence=self.first_number + at
            )
            for at, note in enumerate(self.notes)
        ]
        return bytes(write_records(records, producer_id=self.producer_id, producer_epoch=0))


class ClusterHistory:
    """The history writer of one broker. Used on its event loop."""

    def __init__(
        self,
        *,
        broker_id: int,
        is_enabled: bool,
        clock: Clock,
        metadata: MetadataCache,
        peers: Peers,
        new_producer_id: Callable[[], Awaitable[int]],
        create_topic: Callable[[], Awaitable[None]],
    ) -> None:
        """create_topic: returns once the topic exists. Both functions raise SparklogError."""
        self.is_enabled = is_enabled
        self.written = 0
        """Records written since the start."""
        self.dropped = 0
        self._broker_id = broker_id
        self._clock = clock
        self._metadata = metadata
        self._peers = peers
        self._new_producer_id = new_producer_id
        self._create_topic = create_topic
        self._waiting: deque[_HistoryRecord] = deque()
        self._unsaid = 0
        """Dropped records that the history does not mention yet."""
        self._batch: _HistoryBatch | None = None
        self._producer_id: int | None = None
        self._next_number = 0
        self._has_work = asyncio.Event()
        self._is_written = asyncio.Event()
        """Set while no record waits to be written."""
        self._is_written.set()
        self._task: asyncio.Task[None] | None = None
        self._trouble = ""

    @property
    def waiting(self) -> int:
        """Number of records that are not written yet."""
        return len(self._waiting) + (len(self._batch.notes) if self._batch else 0)

    def note(self, kind: HistoryKind, name: TopicPartition | str = "", /, **details: Any) -> None:
        """Buffer a record. Implements HistoryRecorder."""
        if not self.is_enabled:
            return
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft()
            self._drop(1)
        self._waiting.append(self._encode(kind, name, details))
        self._is_written.clear()
        self._has_work.set()

    def start(self) -> None:
        """Start the task that writes the records; do nothing unless the history is enabled."""
        if self.is_enabled:
            self._task = asyncio.create_task(self._run(), name="cluster history")

    async def flush(self) -> None:
        """Wait until all records are written, for at most `FLUSH_WITHIN_S`. Return at once without a leader."""
        if self._task and self._metadata.leader_of(HISTORY):
            with suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_WITHIN_S):
                    await self._is_written.wait()

    async def stop(self) -> None:
        """Stop, and send the records that can be sent within `FLUSH_WITHIN_S`."""
        if self._task is None:
            return
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        try:
            async with asyncio.timeout(FLUSH_WITHIN_S):
                while self.waiting and HISTORY_TOPIC in self._metadata:
                    await self._send()
        except (SparklogError, TimeoutError) as error:
            logger.info("%d records of the cluster's history are not known to be written: %s", self.waiting, error)

    def _encode(self, kind: HistoryKind, name: TopicPartition | str, details: dict[str, Any]) -> _HistoryRecord:
        now_ms = self._clock.time_ms()
        return _HistoryRecord(*encode_note(kind, name, details, time_ms=now_ms, by=self._broker_id), now_ms)

    def _drop(self, count: int) -> None:
        self.dropped += count
        self._unsaid += count

    async def _run(self) -> None:
        while True:  # until `stop`
            await self._has_work.wait()
            self._has_work.clear()
            await asyncio.sleep(LINGER_S)
            while self.waiting:
                try:
                    if HISTORY_TOPIC not in self._metadata:
                        await self._create_topic()
                    await self._send()
                except SparklogError as error:
                    self._log_trouble(str(error))
                    await asyncio.sleep(RETRY_BACKOFF_S)
                else:
                    self._log_trouble("")
            self._is_written.set()

    def _log_trouble(self, trouble: str) -> None:
        """Log a problem once, however many retries it takes."""
        if trouble and trouble != self._trouble:
            logger.info("the cluster's history waits: %s", trouble)
        self._trouble = trouble

    async def _send(self) -> None:
        """Write one batch. Raises SparklogError if it may not have been written: the caller must send again."""
        if self._producer_id is None:
            self._producer_id, self._next_number = await self._new_producer_id(), 0
        if self._batch is None:
            self._batch = self._next_batch(self._producer_id)
        batch = self._batch
        leader = self._metadata.leader_of(HISTORY)
        if leader is None:
            raise LeaderNotAvailable(f"nobody leads {HISTORY}")
        request = AppendHistory(records=batch.encode(), timeout_ms=APPEND_TIMEOUT_MS)
        try:
            await self._peers.call(leader, request, timeout_ms=ANSWER_WITHIN_MS)
        except UNKNOWN_SEQUENCE:
            self._waiting.extendleft(reversed(batch.notes))
            self._batch = self._producer_id = None
            raise
        except REFUSED_FOR_GOOD as error:
            logger.error("%d records of the cluster's history are dropped: %s", len(batch.notes), error)
            self._drop(len(batch.notes))
            self._batch = self._producer_id = None
        else:
            self.written += len(batch.notes)
            self._batch = None

    def _next_batch(self, producer_id: int) -> _HistoryBatch:
        """Return a batch of the next waiting records: at least one, whatever its size."""
        taken: list[_HistoryRecord] = []
        if self._unsaid:
            taken.append(self._encode(HistoryKind.HISTORY_DROPPED, "", {"dropped": self._unsaid}))
            self._unsaid = 0
        size = 0
        while self._waiting and len(taken) < MAX_AT_ONCE and size < MAX_BYTES_AT_ONCE:
            taken.append(self._waiting.popleft())
            size += len(taken[-1].value)
        batch = _HistoryBatch(notes=tuple(taken), producer_id=producer_id, first_number=self._next_number)
        self._next_number += len(taken)
        return batch
