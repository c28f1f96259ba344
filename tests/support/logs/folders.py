"""Folders of partitions as a broker may find them at its start."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sparklog.base.fs import LocalFs
from sparklog.log.directory.checkpoints import LeaderEpochCheckpoint
from sparklog.log.epochs import EpochStart, LeaderEpochs
from sparklog.records.batch import assign
from sparklog.records.records import Record, write_records


def write_folder(folder: Path, batches: Sequence[tuple[int, int]], epochs: Sequence[tuple[int, int]]) -> None:
    """A segment of batches, each of three records from an offset on, in a leader epoch; epochs: and where they begin.

    The value of a record is its offset. Between batches there may be gaps, as compaction leaves them.
    """
    folder.mkdir(parents=True)
    data = b""
    for first, epoch in batches:
        records = [
            Record(offset=offset, timestamp_ms=1, key=b"k", value=b"%d" % offset) for offset in range(first, first + 3)
        ]
        batch = bytearray(write_records(records))
        assign(batch, 0, base_offset=first, leader_epoch=epoch)
        data += bytes(batch)
    (folder / f"{0:020d}.log").write_bytes(data)
    starts = tuple(EpochStart(epoch, offset) for epoch, offset in epochs)
    LeaderEpochCheckpoint(LocalFs(), str(folder)).write(LeaderEpochs(starts))
