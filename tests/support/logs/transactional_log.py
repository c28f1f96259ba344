"""A partition's folder with transactions in it, and a stand-in for the broker that a compaction asks."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sparklog.base.fs import LocalFs
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.client.maintenance.maintenance import Lease
from sparklog.log.compaction import CompactionPlan, plan_compaction
from sparklog.log.description import LogDescription, SegmentDescription
from sparklog.log.directory.checkpoints import MetaProperties
from sparklog.records.batch import BatchHeader, Codec, iterate_headers
from sparklog.records.markers import EndTransactionMarker, read_marker, write_marker
from sparklog.records.records import Record, read_records, write_records
from sparklog.spark.compaction.work import PartitionWork

CLUSTER, BROKER, PARTITION = "Zm9vYmFyYmF6cXV1eDEyMw", 0, TopicPartition("t", 0)
Row = tuple[bytes, bytes | None]
_KEYS = [b"k%d" % number for number in range(8)]


class Read(NamedTuple):
    """What a log has: a record, or a marker."""

    offset: int
    producer_id: int
    what: Row | EndTransactionMarker


class TransactionalLog:
    """A log of several segments in a folder of its own. It is its own Maintenance client, without leases."""

    def __init__(self, directory: Path, **config: Any) -> None:
        self.folder = directory / str(PARTITION)
        self.folder.mkdir(parents=True)
        MetaProperties(broker_id=BROKER, cluster_id=CLUSTER, directory_id="").write(LocalFs(), str(directory))
        self.config = TopicConfig(cleanup_policy=("compact",), **config)  # type: ignore[arg-type]
        self.cleaned_offset = 0
        self.offset = 0
        self.ends: dict[int, int] = {}
        """The offset of the marker that ended the transaction of a batch, by the batch's base offset."""
        self._open: dict[int, list[int]] = {}
        self._timestamp_ms = 1_700_000_000_000
        self._sequences: dict[tuple[int, int], int] = {}
        self.roll()

    # What is written

    def roll(self) -> None:
        """Begin another segment."""
        self._path(self.offset).touch()

    def send(
        self, rows: Sequence[Row], producer_id: int = -1, epoch: int = 0, *, transactional: bool = True, **how: Any
    ) -> None:
        """Append a batch; without a producer id it is a plain one."""
        first = self._sequences.get((producer_id, epoch), 0)
        records = [
            Record(
                offset=self.offset + number, timestamp_ms=self._tick(), key=key, value=value,
                sequence=-1 if producer_id < 0 else first + number,
            )
            for number, (key, value) in enumerate(rows)
        ]  # fmt: skip
        if transactional and producer_id >= 0:
            self._open.setdefault(producer_id, []).append(self.offset)
        numbered = {} if producer_id < 0 else {"producer_id": producer_id, "producer_epoch": epoch}
        self._sequences[producer_id, epoch] = first + len(rows)
        self._append(write_records(records, transactional=transactional and producer_id >= 0, **numbered, **how))

    def end(self, producer_id: int, epoch: int = 0, *, commit: bool) -> None:
        """Append a marker."""
        self.ends |= dict.fromkeys(self._open.pop(producer_id, ()), self.offset)
        marker = EndTransactionMarker(commit, coordinator_epoch=0)
        self._append(write_marker(marker, producer_id=producer_id, producer_epoch=epoch, timestamp_ms=self._tick()))

    def _append(self, batch: bytearray) -> None:
        struct.pack_into(">q", batch, 0, self.offset)
        struct.pack_into(">i", batch, 12, 0)  # the leader epoch
        with self._path(self.bases[-1]).open("ab") as file:
            file.write(batch)
        self.offset = next(header.next_offset for _, header in iterate_headers(bytes(batch)))

    def _tick(self) -> int:
        self._timestamp_ms += 1
        return self._timestamp_ms

    def _path(self, base_offset: int) -> Path:
        return self.folder / f"{base_offset:020}.log"

    # What it has

    @property
    def bases(self) -> list[int]:
        return sorted(int(path.stem) for path in self.folder.glob("*.log"))

    @property
    def content(self) -> bytes:
        return b"".join(self._path(base).read_bytes() for base in self.bases)

    @property
    def active(self) -> bytes:
        """The bytes of the last segment."""
        return self._path(self.bases[-1]).read_bytes()

    @property
    def batches(self) -> list[tuple[int, BatchHeader]]:
        return list(iterate_headers(self.content))

    def read(self) -> list[Read]:
        """Every record and every marker, in order."""
        found, content = [], self.content
        for position, header in iterate_headers(content):
            for record in read_records(content, position):
                marker = read_marker(record) if header.is_control else None
                found.append(Read(record.offset, header.producer_id, marker or (record.key or b"", record.value)))
        return found

    # What a compaction asks of a broker

    def describe(self, last_stable_offset: int, producer_ids: Iterable[int] | None = None) -> LogDescription:
        """As the leader does; without `producer_ids` it knows all whose batches it has."""
        bases = self.bases
        ends = [*bases[1:], self.offset]
        if producer_ids is None:
            producer_ids = {header.producer_id for _, header in self.batches} - {-1}
        return LogDescription(
            partition=PARTITION, cluster_id=CLUSTER, broker_id=BROKER, high_watermark=self.offset,
            last_stable_offset=last_stable_offset, log_end_offset=self.offset, cleaned_offset=self.cleaned_offset,
            folder=str(self.folder), config=self.config, producer_ids=tuple(sorted(producer_ids)),
            segments=tuple(self._describe(base, end) for base, end in zip(bases, ends, strict=True)),
        )  # fmt: skip

    def work(self, log: LogDescription, now_ms: int) -> PartitionWork | None:
        """What a forced compaction has to do; None if there is no closed segment."""
        plan = plan_compaction(log, now_ms=now_ms, force=True)
        return PartitionWork(log=log, plan=plan, reason="forced") if isinstance(plan, CompactionPlan) else None

    def _describe(self, base: int, end: int) -> SegmentDescription:
        return SegmentDescription(
            base_offset=base, next_offset=end, size_bytes=self._path(base).stat().st_size,
            largest_timestamp_ms=1, first_timestamp_ms=1,
        )  # fmt: skip

    def begin_replace(
        self, log: LogDescription, group: Sequence[SegmentDescription], holder: str, lease_ms: int
    ) -> Lease:
        self._group = group
        return Lease(
            lease_id="", path=str(self.folder / f"staged.{time.monotonic_ns()}"), partition=PARTITION, broker_id=BROKER
        )

    def commit_replace(self, lease: Lease, leader_epoch: int, size_bytes: int, crc32c: int) -> SegmentDescription:
        first, *others = (self._path(segment.base_offset) for segment in self._group)
        Path(lease.path).replace(first)
        for path in others:
            path.unlink()
        assert first.stat().st_size == size_bytes
        return self._describe(self._group[0].base_offset, self._group[-1].next_offset)

    def abort_replace(self, lease: Lease) -> None:
        Path(lease.path).unlink(missing_ok=True)

    def set_cleaned_offset(self, log: LogDescription, offset: int, segments: Sequence[SegmentDescription]) -> None:
        self.cleaned_offset = offset

    def __enter__(self) -> TransactionalLog:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def committed(log: TransactionalLog) -> Iterator[tuple[int, Row]]:
    """What a reader of committed records sees, in offset order: whatever is open counts as aborted."""
    open_: dict[int, list[tuple[int, Row]]] = {}
    seen: list[tuple[int, Row]] = []
    content = log.content
    for position, header in iterate_headers(content):
        for record in read_records(content, position):
            marker = read_marker(record) if header.is_control else None
            if marker is not None:
                rows = open_.pop(header.producer_id, [])
                seen += rows if marker.is_commit else []
            elif header.is_transactional:
                open_.setdefault(header.producer_id, []).append((record.offset, (record.key or b"", record.value)))
            else:
                seen.append((record.offset, (record.key or b"", record.value)))
    return iter(sorted(seen))


def write_randomly(logs: Sequence[TransactionalLog], rng: random.Random, count: int, producers: list[int]) -> None:
    """Write the same to each log: interleaved transactions, some with epochs that markers bump, and other batches.

    Afterwards each has another, active segment, in which the transactions that were open have ended. `producers` has
    the epoch of each producer id; of even ones, markers bump the epoch.
    """
    open_: set[int] = set()

    def send(producer_id: int, **how: Any) -> None:
        rows = [(rng.choice(_KEYS), None if rng.random() < 0.3 else rng.randbytes(5)) for _ in range(rng.randint(1, 4))]
        for log in logs:
            log.send(rows, producer_id, producers[producer_id] if producer_id >= 0 else 0, **how)

    def end(producer_id: int) -> None:
        open_.discard(producer_id)
        producers[producer_id] += producer_id % 2 == 0
        is_commit = rng.random() < 0.6
        for log in logs:
            log.end(producer_id, producers[producer_id], commit=is_commit)

    send(-1)
    for _ in range(count):
        producer_id, chance = rng.randrange(len(producers)), rng.random()
        if chance < 0.1:
            send(-1)
        elif chance < 0.2 and producer_id not in open_:
            send(producer_id, transactional=False)
        elif chance < 0.6:
            open_.add(producer_id)
            send(producer_id, codec=rng.choice([Codec.NONE, Codec.NONE, Codec.LZ4]))
        elif chance < 0.95:
            end(producer_id)
        else:
            for log in logs:
                log.roll()
    for log in logs:
        log.roll()
    send(-1)
    for producer_id in sorted(open_):
        end(producer_id)
