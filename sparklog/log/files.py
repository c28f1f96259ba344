"""Names of the files in a partition's folder, as Apache Kafka gives them (LogFileUtils, LocalLog).

    00000000000000000042.log            record batches; 42 is the segment's base offset
    00000000000000000042.index          offset -> position
    00000000000000000042.timeindex      timestamp -> offset
    00000000000000000042.snapshot       producer state at offset 42, before the segment
    00000000000000000042.txnindex       aborted transactions
    00000000000000000042-0000000007.checkpoint
                                        the newest record of each key below offset 42, of leader epoch 7 (ours: see
                                        offset_snapshot.py; the name is KRaft's)
    leader-epoch-checkpoint             where each leader's records begin
    partition.metadata                  the id of the topic

A further ending says what is happening to the file:

    .deleted    out of the log; goes after file.delete.delay.ms, until then readers may still hold it or find it
    .cleaned    being written to replace a segment; worthless after a crash
    .swap       complete, and about to replace segments; a crash is carried on from here

A folder is `<topic>-<partition>`; a deleted one `<topic>-<partition>.<32 hex digits>-delete` until it is gone. A
replica being moved (`-future`) or found to be somebody else's (`-stray`) is not ours to open.
"""

from __future__ import annotations

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
FOREIGN_FOLDERS = ("-future", "-stray")

MAX_FOLDER_NAME = 255
_DIGITS = 20
_EPOCH_DIGITS = 10


class SegmentFile(NamedTuple):
    """What a file's name says."""

    base_offset: int
    suffix: str
    """One of SEGMENT_SUFFIXES, or SNAPSHOT."""
    mark: str
    """One of MARKS, or empty for a file in use."""


def segment_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:0{_DIGITS}d}{suffix}"


def path_in(folder: str, file: SegmentFile) -> str:
    return f"{folder}/{segment_name(file.base_offset, file.suffix)}{file.mark}"


def parse_name(name: str) -> SegmentFile | None:
    """The parts of a segment file's name; None for any other file."""
    mark = next((mark for mark in MARKS if name.endswith(mark)), "")
    stem = name.removesuffix(mark)
    digits, suffix = stem[:_DIGITS], stem[_DIGITS:]
    is_number = digits.isascii() and digits.isdigit() and len(digits) == _DIGITS
    if not is_number or suffix not in (*SEGMENT_SUFFIXES, SNAPSHOT):
        return None
    return SegmentFile(int(digits), suffix, mark)


def snapshot_name(end_offset: int, leader_epoch: int) -> str:
    """The file with the newest records below `end_offset` (offset_snapshot.py)."""
    return f"{end_offset:0{_DIGITS}d}-{leader_epoch:0{_EPOCH_DIGITS}d}{CHECKPOINT}"


def snapshot_of(name: str) -> tuple[int, int] | None:
    """End offset and leader epoch in the name of such a file; None for any other."""
    offset, _, epoch = name.removesuffix(CHECKPOINT).partition("-")
    parts = ((offset, _DIGITS), (epoch, _EPOCH_DIGITS))
    if not name.endswith(CHECKPOINT) or any(
        not (part.isascii() and part.isdigit() and len(part) == digits) for part, digits in parts
    ):
        return None
    return int(offset), int(epoch)


def delete_folder_name(folder_name: str, unique: str) -> str:
    """What a deleted partition's folder is called until it is gone; never longer than a file name can be."""
    ending = f".{unique}{DELETE_FOLDER}"
    return folder_name[: MAX_FOLDER_NAME - len(ending)] + ending
