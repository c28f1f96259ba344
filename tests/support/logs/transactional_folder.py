"""A partition's folder with transactions, written batch by batch as Apache Kafka does, and what is true of it."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field

from sparklog.base.fs import Fs
from sparklog.log.directory.checkpoints import HIGH_WATERMARKS
from sparklog.log.files import LOG, SNAPSHOT, TXN_INDEX, segment_name
from sparklog.log.producers.snapshots import ProducerEntry, write_snapshot
from sparklog.log.segment.transaction_index import AbortedTransaction, write_entries
from sparklog.records.batch import assign
from sparklog.records.markers import EndTransactionMarker, write_marker
from sparklog.records.records import Record, write_records

PLAIN = -1
"""In the place of a producer id: a batch without a transaction."""


@dataclass
class TransactionalFolder:
    """Writes segments with their snapshots and transaction indexes; the value of each record is its offset."""

    fs: Fs
    folder: str
    end: int = 0
    base: int = 0
    open: dict[int, list[int]] = field(default_factory=dict)
    """Offsets of the records of each open transaction, by producer id."""
    committed: set[int] = field(default_factory=set)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    records: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.fs.make_dir(self.folder)

    @property
    def last_stable_offset(self) -> int:
        return min((offsets[0] for offsets in self.open.values()), default=self.end)

    @property
    def readable(self) -> list[int]:
        """What a reader of committed records sees."""
        return sorted(offset for offset in self.committed if offset < self.last_stable_offset)

    def write(self, producer_id: int = PLAIN, count: int = 2) -> None:
        """Append a batch, in the producer's transaction if it is one's."""
        offsets = list(range(self.end, self.end + count))
        made = [
            Record(offset=offset, timestamp_ms=offset, key=b"k", value=b"%d" % offset, sequence=offset)
            for offset in offsets
        ]
        is_in_transaction = producer_id != PLAIN
        self._append(
            write_records(
                made,
                producer_id=producer_id,
                producer_epoch=0 if is_in_transaction else -1,
                transactional=is_in_transaction,
            ),
            count,
        )
        self.records += offsets
        if is_in_transaction:
            self.open.setdefault(producer_id, []).extend(offsets)
        else:
            self.committed |= {*offsets}

    def finish(self, producer_id: int, *, commit: bool) -> None:
        """Append a marker, for a transaction that may have no records here."""
        marker = write_marker(
            EndTransactionMarker(commit, 0), producer_id=producer_id, producer_epoch=0, timestamp_ms=self.end
        )
        offset = self.end
        self._append(marker, 1)
        offsets = self.open.pop(producer_id, [])
        if commit:
            self.committed |= {*offsets}
        elif offsets:
            entry = AbortedTransaction(producer_id, offsets[0], offset, self.last_stable_offset)
            self.aborted.append(entry)
            self._add(self.path(TXN_INDEX), write_entries([entry]))

    def roll(self) -> None:
        """Begin a new segment, with a snapshot of the producers at its base."""
        if self.base < self.end:
            self.base = self.end
            self.snapshot()
            self._add(self.path(LOG), b"")

    def snapshot(self) -> None:
        """Write a snapshot as of the end."""
        entries = [
            ProducerEntry(producer_id, 0, 0, offsets[-1], 0, 0, -1, offsets[0])
            for producer_id, offsets in self.open.items()
        ]
        self._add(f"{self.folder}/{segment_name(self.end, SNAPSHOT)}", write_snapshot(entries))

    def checkpoint(self, high_watermark: int | None = None) -> None:
        """Checkpoint the high watermark, which is the end if none is given."""
        topic, _, number = posixpath.basename(self.folder).rpartition("-")
        offset = self.end if high_watermark is None else high_watermark
        path = f"{posixpath.dirname(self.folder)}/{HIGH_WATERMARKS}"
        if self.fs.exists(path):
            self.fs.remove(path)
        self._add(path, f"0\n1\n{topic} {number} {offset}\n".encode())

    def path(self, suffix: str) -> str:
        """Return the path of a file of the last segment."""
        return f"{self.folder}/{segment_name(self.base, suffix)}"

    def _append(self, batch: bytearray, count: int) -> None:
        assign(batch, 0, base_offset=self.end, leader_epoch=0)
        self._add(self.path(LOG), bytes(batch))
        self.end += count

    def _add(self, path: str, data: bytes) -> None:
        file = self.fs.open(path, create=True)
        try:
            file.append(data)
        finally:
            file.close()
