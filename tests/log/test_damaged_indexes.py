"""Index files that a disk or a person has changed after a clean stop, and missing log files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.base.errors import CorruptRecord
from sparklog.base.fs import LocalFs
from sparklog.base.ids import TopicPartition
from sparklog.log.directory.checkpoints import OffsetCheckpoint
from sparklog.log.log import Log
from sparklog.log.reader import LogReader
from sparklog.testing.memory_fs import MemoryFs
from support import GOLDEN
from support.logs.builders import (
    START_MS,
    batch,
    check_indexes,
    file_content,
    offsets_in,
    open_log,
    read_all,
    rewrite,
    topic_config,
)

FOLDER = "/logs/orders-0"
BATCHES = 60
CONFIG = topic_config(internal_segment_bytes=4_000, index_interval_bytes=300)
bases = st.sampled_from([0, 45, 90, 135])
suffixes = st.sampled_from([".index", ".timeindex"])


def closed() -> MemoryFs:
    """A folder of several closed segments with several index entries in each."""
    fs = MemoryFs()
    log = open_log(fs, config=CONFIG)
    for number in range(BATCHES):
        log.append(batch(3, timestamp_ms=START_MS + 10 * number, value=b"x" * 60), leader_epoch=0)
    assert [segment.base_offset for segment in log.segments] == [0, 45, 90, 135]
    log.close()
    return fs


def path(base: int, suffix: str) -> str:
    return f"{FOLDER}/{base:020d}{suffix}"


def check(log: Log) -> None:
    """The log is read, and its records found by offset and timestamp, as they were written."""
    assert offsets_in(read_all(log, max_bytes=700)) == list(range(3 * BATCHES))
    for number in (0, 13, 14, 15, 40, BATCHES - 1):
        assert offsets_in(log.read(3 * number, 1).read()) == [3 * number, 3 * number + 1, 3 * number + 2]
        found = log.offset_for_timestamp(START_MS + 10 * number)
        assert found is not None
        assert (found.offset, found.timestamp_ms) == (3 * number, START_MS + 10 * number)
    assert [segment.largest.timestamp_ms for segment in log.segments] == [
        START_MS + 10 * number + 2 for number in (14, 29, 44, BATCHES - 1)
    ]


@pytest.mark.slow
@given(bases, suffixes, st.booleans(), st.binary(min_size=1, max_size=40))
def test_garbage_behind_an_index_or_in_its_place_costs_nothing(
    base: int, suffix: str, behind: bool, garbage: bytes
) -> None:
    fs = closed()
    before = file_content(fs, path(base, suffix))
    rewrite(fs, path(base, suffix), (before if behind else b"") + garbage)
    log = open_log(fs, config=CONFIG)
    check(log)
    check_indexes(log)
    log.append(batch(3), leader_epoch=0)
    log.close()


@pytest.mark.slow
@given(bases, st.sets(suffixes, min_size=1), st.booleans(), st.data())
def test_indexes_may_be_cut_anywhere(base: int, which: set[str], whole: bool, data: st.DataObject) -> None:
    """whole: cut before an entry, so that the rest is an index of fewer batches"""
    fs = closed()
    for suffix in which:
        before = file_content(fs, path(base, suffix))
        entry = {".index": 8, ".timeindex": 12}[suffix] if whole else 1
        rewrite(fs, path(base, suffix), before[: data.draw(st.integers(0, len(before) // entry)) * entry])
    check(open_log(fs, config=CONFIG))


def test_a_segment_whose_time_index_was_cut_is_not_deleted_before_its_time() -> None:
    fs = closed()
    before = file_content(fs, path(0, ".timeindex"))
    rewrite(fs, path(0, ".timeindex"), before[:12])
    log = open_log(fs, config=topic_config(retention_ms=100))
    assert log.delete_old_segments(START_MS + 10 * 14 + 2 + 100) == 0
    assert log.delete_old_segments(START_MS + 10 * 14 + 2 + 101) == 1


def test_timestamps_need_not_grow_for_an_index_to_be_taken_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    fs = MemoryFs()
    log = open_log(fs, config=CONFIG)
    for number in range(BATCHES):
        log.append(batch(3, timestamp_ms=START_MS - 7 * number % 50, value=b"x" * 60), leader_epoch=0)
    largest = [segment.largest for segment in log.segments]
    log.close()
    assert [segment.largest for segment in open_log(fs, config=CONFIG).segments] == largest
    assert "building them again" not in caplog.text


@pytest.mark.slow
@given(bases, suffixes, st.data())
def test_readers_of_the_folder_do_without_an_index_that_makes_no_sense(
    base: int, suffix: str, data: st.DataObject
) -> None:
    fs = closed()
    rewrite(fs, path(base, suffix), data.draw(st.binary(min_size=1, max_size=100)))
    reader = LogReader(fs, FOLDER)
    ranges = reader.cut(0, 3 * BATCHES, 4)
    found = [offset for each in ranges for chunk in reader.read(each, 1_000) for offset in offsets_in(chunk)]
    assert sorted(set(found)) == list(range(3 * BATCHES))


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_the_index_of_another_segment_is_noticed(suffix: str) -> None:
    fs = closed()
    rewrite(fs, path(45, suffix), file_content(fs, path(0, suffix))[:-12] + file_content(fs, path(135, suffix))[-24:])
    log = open_log(fs, config=CONFIG)
    check(log)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("base", [0, 90])
@pytest.mark.parametrize("how", ["deleted", "emptied"])
def test_records_that_were_flushed_do_not_go_without_a_word(how: str, base: int, clean: bool) -> None:
    fs = closed()
    kept = file_content(fs, path(base, ".log"))
    rewrite(fs, path(base, ".log"), b"")
    if how == "deleted":
        fs.remove(path(base, ".log"))
    with pytest.raises(CorruptRecord, match=rf"{base:020d}\.log is (missing|empty): flushed records are lost, from"):
        open_log(fs, config=CONFIG, clean=clean, recovery_point=3 * BATCHES, compacted_to=0)
    rewrite(fs, path(base, ".log"), kept)
    check(open_log(fs, config=CONFIG, clean=clean, recovery_point=3 * BATCHES, compacted_to=0))


@pytest.mark.parametrize("base", [0, 90])
@pytest.mark.parametrize("batches", [0, 1, 8])
def test_flushed_records_are_missed_in_a_segment_that_is_flushed_in_part(base: int, batches: int) -> None:
    """The segment's indexes may be unflushed, and so prove nothing."""
    fs = closed()
    kept = file_content(fs, path(base, ".log"))
    damaged = kept[: len(kept) // 15 * batches]
    rewrite(fs, path(base, ".log"), damaged)
    for suffix in (".index", ".timeindex"):
        rewrite(fs, path(base, suffix), b"")
    promised = {"clean": False, "recovery_point": base + 30, "compacted_to": 0}
    for _ in range(2):
        with pytest.raises(CorruptRecord, match="flushed records are lost"):
            open_log(fs, config=CONFIG, **promised)
        assert file_content(fs, path(base, ".log")) == damaged
        assert fs.exists(path(135, ".log")), "what comes after it is kept"
    rewrite(fs, path(base, ".log"), kept)
    check(open_log(fs, config=CONFIG, **promised))


def test_they_are_given_up_by_moving_away_what_there_is_of_them() -> None:
    fs = closed()
    for suffix in (".log", ".index", ".timeindex"):
        fs.remove(path(90, suffix))
    log = open_log(fs, config=CONFIG, recovery_point=3 * BATCHES, compacted_to=0)
    assert offsets_in(read_all(log)) == [*range(90), *range(135, 3 * BATCHES)]


def test_an_index_of_what_was_deleted_or_never_promised_says_nothing() -> None:
    fs = closed()
    fs.remove(path(0, ".log"))
    log = open_log(fs, config=CONFIG, recovery_point=3 * BATCHES, log_start_offset=45)
    assert log.log_start_offset == 45
    log.close()
    fs = closed()
    fs.remove(path(135, ".log"))
    assert open_log(fs, config=CONFIG, clean=False, recovery_point=135, compacted_to=0).log_end_offset == 135


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("base", [0, 90])
@pytest.mark.parametrize("batches", [1, 2, 8, 14])
@pytest.mark.parametrize("inside", [0, 40, -30])
def test_a_closed_segment_that_was_cut_short_is_noticed(base: int, batches: int, inside: int, clean: bool) -> None:
    """The file is cut at the end of any batch or inside one, between two index entries and behind the last."""
    fs = closed()
    kept = file_content(fs, path(base, ".log"))
    rewrite(fs, path(base, ".log"), kept[: len(kept) // 15 * batches + inside])
    with pytest.raises(CorruptRecord, match=rf"{base:020d}\.log (is cut off|ends before).*: flushed records are lost"):
        open_log(fs, config=CONFIG, clean=clean, recovery_point=3 * BATCHES, compacted_to=0)
    rewrite(fs, path(base, ".log"), kept)
    check(open_log(fs, config=CONFIG, clean=clean, recovery_point=3 * BATCHES, compacted_to=0))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("batches", [0, 1, 8, 14])
@pytest.mark.parametrize("zeros", [False, True])
def test_the_end_of_a_log_does_not_go_below_what_was_flushed(batches: int, zeros: bool, clean: bool) -> None:
    fs = closed()
    kept = file_content(fs, path(135, ".log"))
    damaged = kept[: len(kept) // 15 * batches]
    damaged += bytes(len(kept) - len(damaged)) if zeros else b""
    rewrite(fs, path(135, ".log"), damaged)
    promised = {"clean": clean, "recovery_point": 3 * BATCHES, "compacted_to": 0}
    with pytest.raises(CorruptRecord, match=r"flushed records are lost|the disk has lost flushed records"):
        open_log(fs, config=CONFIG, **promised)
    assert file_content(fs, path(135, ".log")) == damaged, "the evidence is kept"
    log = open_log(fs, config=CONFIG, clean=False)
    assert log.log_end_offset == 135 + 3 * batches, "given up by moving the recovery points away"
    log.close()
    rewrite(fs, path(135, ".log"), kept)
    check(open_log(fs, config=CONFIG, **promised))


def test_a_log_that_retention_has_emptied_has_lost_nothing() -> None:
    fs = closed()
    for base in (0, 45, 90, 135):
        for suffix in (".log", ".index", ".timeindex"):
            fs.remove(path(base, suffix))
    log = open_log(fs, clean=False, recovery_point=180, log_start_offset=180)
    assert (log.log_start_offset, log.log_end_offset) == (180, 180)


@pytest.mark.parametrize("base", [0, 45])
@pytest.mark.parametrize("how", ["deleted", "emptied", "cut"])
def test_a_reader_of_the_folder_does_not_pass_over_records_that_are_lost(how: str, base: int) -> None:
    fs = closed()
    kept = file_content(fs, path(base, ".log"))
    reader = LogReader(fs, FOLDER)
    rewrite(fs, path(base, ".log"), kept[: len(kept) // 15 * 14] if how == "cut" else b"")
    if how == "deleted":
        fs.remove(path(base, ".log"))
    assert reader.cut(reader.log_start_offset, 180, 1), "nothing tells without the recovery point"
    OffsetCheckpoint(fs, "/logs/recovery-point-offset-checkpoint").write({TopicPartition("orders", 0): 180})
    with pytest.raises(CorruptRecord, match=rf"{base:020d}\.log (is missing|is empty|ends before).* records are lost"):
        reader.cut(reader.log_start_offset, 180, 1)
    if how != "deleted":
        assert reader.cut(90, 180, 1), "none of these is lost"
    rewrite(fs, path(base, ".log"), kept)
    assert reader.cut(0, 180, 1)


def test_a_reader_passes_over_segments_that_a_cleaner_has_emptied() -> None:
    fs = closed()
    for suffix in (".log", ".index", ".timeindex"):
        rewrite(fs, path(45, suffix), b"")
    OffsetCheckpoint(fs, "/logs/recovery-point-offset-checkpoint").write({TopicPartition("orders", 0): 180})
    reader = LogReader(fs, FOLDER)
    found = [offset for each in reader.cut(0, 180, 1) for chunk in reader.read(each) for offset in offsets_in(chunk)]
    assert found == [*range(45), *range(90, 180)]


@pytest.mark.parametrize(
    "golden", sorted(path.parent for path in GOLDEN.glob("*/expected.jsonl")), ids=lambda p: p.name
)
def test_nothing_is_missed_in_folders_that_kafka_has_compacted(golden: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(golden, tmp_path / golden.name)
    reader = LogReader(LocalFs(), str(folder))
    start, end = reader.log_start_offset, reader.end_offset()
    place = TopicPartition.parse(folder.name)
    OffsetCheckpoint(LocalFs(), f"{tmp_path}/recovery-point-offset-checkpoint").write({place: end})
    assert reader.cut(start, end, 1)
    log = open_log(LocalFs(), str(folder), clean=False, recovery_point=end, compacted_to=0)
    assert log.log_end_offset == end
    log.close()
