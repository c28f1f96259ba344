"""Snapshots of a compacted log are complete or missing, and are used only while they fit the log."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Iterable

import pyarrow as pa
import pytest

from sparklog.base.errors import CorruptRecord, InvalidRecord, KafkaStorageError, OffsetOutOfRange
from sparklog.base.topic_config import TopicConfig
from sparklog.group.loader import is_complete
from sparklog.log.log import Log
from sparklog.log.offset_snapshots.snapshot import Snapshot, SnapshotId
from sparklog.records.arrow import decode_batches, encode_all
from sparklog.records.records import Record, write_records
from sparklog.testing import SimClock
from sparklog.testing.memory_fs import MemoryFs, PowerCut

FOLDER = "/data/__consumer_offsets-0"


def open_log(fs: MemoryFs, *, clean: bool = False) -> Log:
    fs.make_dir("/data")
    log = Log.open(fs, FOLDER, TopicConfig(), SimClock(), clean=clean)
    fs.flush_dir("/")
    fs.flush_dir("/data")
    return log


def append(log: Log, *keys: str, epoch: int = 0) -> None:
    for key in keys:
        log.append(write_records([Record(offset=0, key=key.encode(), value=b"v")]), leader_epoch=epoch)


def batches(offsets: Iterable[int]) -> bytes:
    offsets = list(offsets)
    rows = {
        "offset": pa.array(offsets, pa.int64()),
        "key": [b"k%d" % n for n in offsets],
        "value": [b"v"] * len(offsets),
    }
    return b"".join(encode_all(pa.table(rows), max_batch_bytes=200, default_timestamp_ms=1, keep_offsets=True))


def install(log: Log, end_offset: int, offsets: Iterable[int]) -> int:
    data = batches(offsets)
    writer = log.offset_snapshots.begin(end_offset)
    for at in range(0, len(data), 100):  # cut anywhere
        writer.append(data[at : at + 100])
    return log.offset_snapshots.install(writer)


def newest(log: Log) -> Snapshot | None:
    return log.offset_snapshots.newest(lambda _: "")


def offsets_in(snapshot: Snapshot | None) -> list[int]:
    assert snapshot is not None
    return [
        offset for data in snapshot.read() for part in decode_batches(data) for offset in part["offset"].to_pylist()
    ]


def test_an_installed_snapshot_is_read_back_after_a_start_too() -> None:
    fs = MemoryFs()
    log = open_log(fs)
    append(log, *"abcdefghij")

    install(log, 9, [1, 4, 8])

    found = newest(log)
    assert found is not None
    assert (found.id, found.records, offsets_in(found)) == (SnapshotId(9, 0), 3, [1, 4, 8])
    log.close()
    assert offsets_in(newest(open_log(fs, clean=True))) == [1, 4, 8]


def test_a_snapshot_of_nothing_is_one() -> None:
    log = open_log(MemoryFs())
    append(log, *"abc")

    install(log, 3, [])

    assert offsets_in(newest(log)) == []


def test_a_newer_one_takes_the_place_of_the_older() -> None:
    fs = MemoryFs()
    log = open_log(fs)
    append(log, *"abcdef")

    install(log, 3, [1])
    install(log, 6, [2, 5])

    assert [name for name in fs.list(FOLDER) if "checkpoint" in name and name[0] == "0"] == [
        "00000000000000000006-0000000000.checkpoint"
    ]


@pytest.mark.parametrize("ends_at", [3, 5, 7])
def test_a_truncation_below_its_end_removes_a_snapshot(ends_at: int) -> None:
    log = open_log(MemoryFs())
    append(log, *"abcdefgh")
    install(log, 5, [1, 4])

    log.truncate_to(ends_at)

    assert (newest(log) is None) == (ends_at < 5)


def test_a_start_that_finds_a_shorter_log_removes_a_snapshot() -> None:
    fs = MemoryFs()
    log = open_log(fs)
    append(log, *"abcdefgh")
    install(log, 8, [1, 7])
    file = fs.open(f"{FOLDER}/{0:020d}.log")
    file.truncate(file.size - 1)

    assert newest(open_log(fs)) is None


def test_one_of_another_history_than_the_log_s_is_refused() -> None:
    log = open_log(MemoryFs())
    append(log, *"abcdef")
    writer = log.offset_snapshots.begin(6)
    writer.append(batches([1, 5]))
    log.truncate_to(4)
    append(log, "x", "y", epoch=3)

    with pytest.raises(OffsetOutOfRange, match="leader epoch 3"):
        log.offset_snapshots.install(writer)

    assert newest(log) is None


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (batches([1, 2, 6]), InvalidRecord),
        (batches([4]) + batches([2]), CorruptRecord),
        (batches([1])[:-1], CorruptRecord),
        (batches([1])[:-1] + b"?", CorruptRecord),
        (write_records([Record(offset=1, key=b"k", value=b"v")], producer_id=1, transactional=True), InvalidRecord),
    ],
    ids=["beyond its end", "out of order", "torn", "damaged", "transactional"],
)
def test_an_invalid_snapshot_leaves_nothing_behind(data: bytes, error: type[Exception]) -> None:
    fs = MemoryFs()
    log = open_log(fs)
    append(log, *"abcdefgh")
    writer = log.offset_snapshots.begin(6)
    writer.append(data)

    with pytest.raises(error):
        log.offset_snapshots.install(writer)

    assert not [name for name in fs.list(FOLDER) if name.startswith("00000000000000000006")]


def test_a_disk_without_room_refuses_it_and_harms_nothing_else() -> None:
    fs = MemoryFs()
    log = open_log(fs)
    append(log, *"abcdef")
    log.flush()
    writer = log.offset_snapshots.begin(6)
    log.offset_snapshots.write(writer, batches([1, 5]))

    fs.fail_under(FOLDER, errno.ENOSPC)
    with pytest.raises(KafkaStorageError, match="no room"):
        log.offset_snapshots.begin(6)
    with pytest.raises(KafkaStorageError, match="no room"):
        log.offset_snapshots.write(writer, b"more")
    with pytest.raises(KafkaStorageError, match="no room"):
        log.offset_snapshots.install(writer)
    fs.repair(FOLDER)

    assert not [name for name in fs.list(FOLDER) if name.endswith(".part")]
    append(log, "g")
    assert install(log, 6, [2, 5])


def test_a_file_that_is_torn_or_changed_anywhere_is_passed_over() -> None:
    fs = MemoryFs()
    log = open_log(fs)
    append(log, *"abcdef")
    size = install(log, 6, [1, 5])
    path = f"{FOLDER}/00000000000000000006-0000000000.checkpoint"
    whole = fs.open_read(path).read_at(0, size)

    for at in range(size):
        for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]):
            file = fs.open(path)
            file.truncate(0)
            file.append(damaged)
            assert newest(log) is None


def test_a_power_cut_at_any_change_leaves_it_whole_or_not_at_all() -> None:
    seen = set()
    for changes in range(40):
        chance = random.Random(changes)
        fs = MemoryFs()
        log = open_log(fs)
        append(log, *"abcdef")
        install(log, 4, [1, 3])
        fs.cut_power_after(changes, chance)
        with contextlib.suppress(PowerCut):
            install(log, 6, [2, 5])
        log = open_log(fs.crash(chance))

        found = newest(log)

        seen.add(tuple(offsets_in(found)))
        assert found is not None
        assert log.log_end_offset >= found.id.end_offset
    assert seen == {(1, 3), (2, 5)}


def test_a_tail_without_all_its_records_is_told() -> None:
    log = open_log(MemoryFs())
    append(log, *"abc")
    log.as_follower.append(write_records([Record(offset=4, key=b"e")], last_offset=5))

    assert is_complete(log, 0, 3)
    assert is_complete(log, 2, 3)
    assert not is_complete(log, 0, 4)
    assert not is_complete(log, 4, 6)
