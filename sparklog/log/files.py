"""Names of the files in a partition's folder, as in Apache Kafka (LogFileUtils, LocalLog).

    00000000000000000042.log            record batches; 42 is the segment's base offset
    00000000000000000042.index          offset -> position
    00000000000000000042.timeindex      timestamp -> offset
    00000000000000000042.snapshot       producer state at offset 42, before the segment
    00000000000000000042.txnindex       aborted transactions
    00000000000000000042-0000000007.checkpoint
                                        the newest record of each key below offset 42, of leader epoch 7 (sparklog's
                                        own file, see offset_snapshots/; the name is KRaft's)
    leader-epoch-checkpoint             where each leader epoch begins
    partition.metadata                  the id of the topic

A second suffix gives the state of the file:

    .deleted    removed from the log; readers may use it until it is deleted after file.delete.delay.ms
    .cleaned    being written to replace a segment; discarded after a crash
    .swap       complete, and about to replace segments; the replacement is completed after a crash

A folder is `<topic>-<partition>`; a deleted one `<topic>-<partition>.<32 hex digits>-delete` until it is removed.
The copy of a replica that moves to another log directory is `<topic>-<partition>.<32 hex digits>-future` (move.py).
Folders of replicas that do not belong to the broker (`-stray`) are not opened.
"""

from __future__ import annotations

import re
from typing import NamedTuple

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
SNAPSHOT = ".snapshot"
TXN_INDEX = ".txnindex"
SEGMENT_SUFFIXES = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)

DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
MARKS = (DELETED, CLEANED, SWAP)

CHECKPOINT = ".checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
DELETE_FOLDER = "-delete"
STRAY_FOLDER = "-stray"
FUTURE_FOLDER = "-future"
FOREIGN_FOLDERS = (FUTURE_FOLDER, STRAY_FOLDER)

MAX_FOLDER_NAME = 255
_DIGITS = 20
_SUFFIXES = "|".join(map(re.escape, (*SEGMENT_SUFFIXES, SNAPSHOT)))
_SEGMENT_NAME = re.compile(f"([0-9]{{{_DIGITS}}})({_SUFFIXES})({'|'.join(map(re.escape, MARKS))}|)")
_EPOCH_DIGITS = 10


class SegmentFile(NamedTuple):
    """The parts of a segment file's name."""

    base_offset: int
    suffix: str
    """One of SEGMENT_SUFFIXES, or SNAPSHOT."""
    mark: str
    """One of MARKS, or empty for a file in use."""


def segment_name(base_offset: int, suffix: str) -> str:
    """Return a file's name: the base offset in 20 digits, and the suffix."""
    return f"{base_offset:0{_DIGITS}d}{suffix}"


def path_in(folder: str, file: SegmentFile) -> str:
    """Return the path of a segment's file in a partition's folder, with its mark, if any."""
    return f"{folder}/{segment_name(file.base_offset, file.suffix)}{file.mark}"


def parse_name(name: str) -> SegmentFile | None:
    """Return the parts of a segment file's name; None for any other file."""
    found = _SEGMENT_NAME.fullmatch(name)
    return SegmentFile(int(found[1]), found[2], found[3]) if found else None


def snapshot_name(end_offset: int, leader_epoch: int) -> str:
    """Return the name of the snapshot of the newest records below `end_offset` (offset_snapshots/snapshot.py)."""
    return f"{end_offset:0{_DIGITS}d}-{leader_epoch:0{_EPOCH_DIGITS}d}{CHECKPOINT}"


def snapshot_of(name: str) -> tuple[int, int] | None:
    """Return the end offset and leader epoch in a snapshot's name; None for any other file."""
    offset, _, epoch = name.removesuffix(CHECKPOINT).partition("-")
    parts = ((offset, _DIGITS), (epoch, _EPOCH_DIGITS))
    if not name.endswith(CHECKPOINT) or any(
        not (part.isascii() and part.isdigit() and len(part) == digits) for part, digits in parts
    ):
        return None
    return int(offset), int(epoch)


def marked_folder_name(folder_name: str, unique: str, mark: str) -> str:
    """Return a partition's folder name marked with DELETE_FOLDER or STRAY_FOLDER, cut to `MAX_FOLDER_NAME`."""
    ending = f".{unique}{mark}"
    return folder_name[: MAX_FOLDER_NAME - len(ending)] + ending
