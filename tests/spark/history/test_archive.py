"""Copies of a log to its archive: each record once, even if runs die or overlap, in bounded memory."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparklog.base.errors import ConfigError
from sparklog.base.ids import TopicPartition
from sparklog.log.description import LogDescription, SegmentDescription
from sparklog.spark.history.archive import ArchiveTarget, next_slice
from sparklog.spark.history.archive_files import DatedFiles, TableLocation, by_day, date_of
from sparklog.spark.history.archive_table import ArchiveTable, ConcurrentCommit
from sparklog.spark.history.progress import Progress, TableRange
from sparklog.spark.source.offsets import PartitionRange
from support.jobs.archives import (
    InProcess,
    archive_closed,
    archived_rows,
    describe,
    fill_days,
    named_files,
    parquet_files,
)
from support.patience import PATIENCE_S, wait_until
from support.spark_topics import Topics, make_reader, rows_of

pytestmark = pytest.mark.slow


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "archive")


@pytest.fixture
def topic(topics: Topics) -> str:
    """Two partitions: 120 records in segments of some thirty, and 60."""
    name = topics.create(2, internal_segment_bytes=2500)
    fill_days(topics, name, 120)
    fill_days(topics, name, 60, partition=1)
    return name


def plain_rows(topics: Topics, topic: str, ends: dict[int, int]) -> list[dict]:
    """Return the records of an ordinary read of each partition up to an offset, with the archive's columns."""
    read = make_reader(
        {"bootstrap.servers": topics.bootstrap, "subscribe": topic, "includeHeaders": "true"}, headers=True
    )
    rows = [row for row in rows_of(read) if row["offset"] < ends[row["partition"]]]
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def ends_of(topics: Topics, topic: str) -> dict[int, int]:
    logs = describe(topics, topic)
    return {name.partition: log.closed_segments[-1].next_offset for name, log in logs.items()}


def without_date(rows: list[dict]) -> list[dict]:
    return [{name: value for name, value in row.items() if name != "date"} for row in rows]


def test_the_archive_has_what_a_read_gives_by_the_day_of_its_timestamp(topics: Topics, topic: str, uri: str) -> None:
    ends = ends_of(topics, topic)
    copied = archive_closed(topics, topic, uri)
    rows = archived_rows(uri)
    assert without_date(rows) == plain_rows(topics, topic, ends)
    assert all(row["date"] == row["timestamp"].date() for row in rows)
    assert {name.partition: each.archived for name, each in copied.items()} == {0: (0, ends[0]), 1: (0, ends[1])}
    assert sum(each.records for each in copied.values()) == len(rows)
    assert DeltaTable(uri).version() == 1  # all partitions in one commit


def test_a_second_run_copies_only_what_came_since(topics: Topics, topic: str, uri: str) -> None:
    archive_closed(topics, topic, uri)
    assert [each.records for each in archive_closed(topics, topic, uri).values()] == [0, 0]
    assert DeltaTable(uri).version() == 1
    fill_days(topics, topic, 60, first=120)
    ends = ends_of(topics, topic)
    archive_closed(topics, topic, uri)
    assert without_date(archived_rows(uri)) == plain_rows(topics, topic, ends)


def test_topics_may_share_an_archive(topics: Topics, topic: str, uri: str) -> None:
    other = topics.create(internal_segment_bytes=2500)
    fill_days(topics, other, 60)
    archive_closed(topics, topic, uri)
    archive_closed(topics, other, uri)
    ends = ends_of(topics, other)
    assert without_date([row for row in archived_rows(uri) if row["topic"] == other]) == plain_rows(topics, other, ends)


def test_two_runs_at_once_archive_each_offset_once(topics: Topics, topic: str, uri: str) -> None:
    both_have_copied = threading.Barrier(2, timeout=PATIENCE_S)
    met = threading.local()

    def wait_once() -> None:
        if not getattr(met, "yes", False):
            met.yes = True
            both_have_copied.wait()

    ArchiveTable.create(TableLocation(uri))
    outcomes: list[dict] = []

    def run() -> None:
        outcomes.append(archive_closed(topics, topic, uri, InProcess(wait_once)))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    ends = ends_of(topics, topic)
    assert without_date(archived_rows(uri)) == plain_rows(topics, topic, ends)
    assert sorted(sum(each.records for each in copied.values()) for copied in outcomes) == [0, sum(ends.values())]
    assert [each.error for copied in outcomes for each in copied.values()] == [""] * 4
    assert parquet_files(uri) == named_files(uri)  # whoever lost has taken its files away


def test_a_run_that_dies_before_its_commit_has_done_nothing(topics: Topics, topic: str, uri: str) -> None:
    class Died(BaseException):
        pass

    def die() -> None:
        raise Died

    with pytest.raises(Died):
        archive_closed(topics, topic, uri, InProcess(die))
    left_behind = parquet_files(uri)
    assert left_behind
    assert archived_rows(uri) == []
    archive_closed(topics, topic, uri)
    assert without_date(archived_rows(uri)) == plain_rows(topics, topic, ends_of(topics, topic))
    assert not named_files(uri) & left_behind


def test_a_large_backlog_goes_in_slices_each_with_its_commit(topics: Topics, topic: str, uri: str) -> None:
    commits = []
    archive_closed(topics, topic, uri, slice_bytes=2000, say=commits.append)
    assert DeltaTable(uri).version() == len(commits) > 1
    assert without_date(archived_rows(uri)) == plain_rows(topics, topic, ends_of(topics, topic))


def test_a_slice_takes_whole_segments_until_it_is_full_and_one_at_least() -> None:
    def log(partition: int, *sizes: int) -> ArchiveTarget:
        segments = tuple(
            SegmentDescription(
                base_offset=10 * i,
                next_offset=10 * i + 10,
                size_bytes=size,
                largest_timestamp_ms=0,
                first_timestamp_ms=0,
            )
            for i, size in enumerate(sizes)
        )
        description = LogDescription(partition=TopicPartition("t", partition), segments=segments)
        return ArchiveTarget(log=description, offset_to=10 * len(sizes))

    left = [(log(0, 100, 100, 100), 10), (log(1, 50, 500), 0), (log(2, 7), 0)]
    first, second, third = (TopicPartition("t", number) for number in range(3))
    assert next_slice(left, 1) == [(PartitionRange(first, 10, 20), 100)]
    assert next_slice(left, 250) == [(PartitionRange(first, 10, 30), 200), (PartitionRange(second, 0, 10), 50)]
    assert next_slice(left, 260) == [
        (PartitionRange(first, 10, 30), 200), (PartitionRange(second, 0, 10), 50), (PartitionRange(third, 0, 10), 7)
    ]  # fmt: skip
    assert next_slice([], 100) == []


@given(
    sizes=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 500)), min_size=1, max_size=6),
    data=st.data(),
)
def test_slices_one_after_the_other_take_each_offset_once_and_little_more_than_their_limit(
    sizes: list[tuple[int, int]], data: st.DataObject
) -> None:
    segments, base = [], 0
    for count, size in sizes:
        segments.append(
            SegmentDescription(
                base_offset=base, next_offset=base + count, size_bytes=size, largest_timestamp_ms=0,
                first_timestamp_ms=0,
            )
        )  # fmt: skip
        base += count
    start = data.draw(st.integers(0, base))
    end = data.draw(st.integers(start, base))
    limit = data.draw(st.integers(1, 800))
    log = LogDescription(partition=TopicPartition("t", 0), segments=tuple(segments))
    taken, at = [], start
    while slice_of := next_slice([(ArchiveTarget(log=log, offset_to=end), at)] if at < end else [], limit):
        [(each, size)] = slice_of
        assert each.offset_from == at
        touched = [it for it in segments if it.base_offset < each.offset_to and it.next_offset > each.offset_from]
        assert size <= limit or len([it for it in touched if it.size_bytes]) == 1
        assert size <= sum(it.size_bytes for it in touched)
        taken += range(each.offset_from, each.offset_to)
        at = each.offset_to
    assert taken == list(range(start, end))


def test_a_damaged_partition_is_left_and_the_others_go_on(topics: Topics, topic: str, uri: str) -> None:
    log = describe(topics, topic)[TopicPartition(topic, 0)]
    damaged = Path(topics.folder(topic), f"{log.segments[1].base_offset:020}.log")
    data = bytearray(damaged.read_bytes())
    data[300] ^= 1
    damaged.write_bytes(data)
    copied = archive_closed(topics, topic, uri)
    assert "CRC" in copied[TopicPartition(topic, 0)].error
    assert copied[TopicPartition(topic, 0)].archived is None
    assert copied[TopicPartition(topic, 1)].error == ""
    assert {row["partition"] for row in archived_rows(uri)} == {1}
    assert parquet_files(uri) == named_files(uri)


def test_records_that_went_before_they_could_be_archived_are_told(topics: Topics, topic: str, uri: str) -> None:
    archive_closed(topics, topic, uri)
    end = ends_of(topics, topic)[0]
    fill_days(topics, topic, 90, first=120)
    topics.delete_before(topic, end + 15)
    copied = archive_closed(topics, topic, uri)[TopicPartition(topic, 0)]
    assert (copied.lost_from, copied.lost_to, copied.error) == (end, end + 15, "")
    offsets = [row["offset"] for row in archived_rows(uri) if row["partition"] == 0]
    assert offsets == [*range(end), *range(end + 15, ends_of(topics, topic)[0])]


def test_a_new_topic_of_an_old_name_is_not_mixed_with_it(topics: Topics, topic: str, uri: str) -> None:
    archive_closed(topics, topic, uri)
    before = archived_rows(uri)
    log = replace(describe(topics, topic)[TopicPartition(topic, 0)], topic_id="another")
    with pytest.raises(ConfigError, match="of an earlier topic of that name"):
        ArchiveTable.create(TableLocation(uri)).archived(log.partition, log.topic_id)
    assert archived_rows(uri) == before


def test_a_table_of_another_kind_is_refused_and_left_alone(topics: Topics, topic: str, uri: str) -> None:
    write_deltalake(uri, pa.table({"offset": [1], "what": ["else"]}))
    with pytest.raises(ConfigError, match=r"is a table of another kind: an archive has the columns topic:string"):
        archive_closed(topics, topic, uri)
    assert DeltaTable(uri).version() == 0


def test_a_table_that_readers_must_know_more_about_is_refused(uri: str) -> None:
    ArchiveTable.create(TableLocation(uri))
    DeltaTable(uri).alter.set_table_properties({"delta.enableDeletionVectors": "true"})
    with pytest.raises(ConfigError, match="features"):
        ArchiveTable.open(TableLocation(uri))


def test_where_there_is_no_table_none_is_found(uri: str) -> None:
    assert ArchiveTable.open(TableLocation(uri)) is None
    assert ArchiveTable.create(TableLocation(uri)).archived(TopicPartition("t", 0)) is None
    assert ArchiveTable.create(TableLocation(f"file://{uri}")).archived(TopicPartition("t", 0)) is None


def test_a_commit_upon_what_another_has_moved_on_is_refused(uri: str) -> None:
    one, other = ArchiveTable.create(TableLocation(uri)), ArchiveTable.create(TableLocation(uri))
    partition = TopicPartition("t", 0)
    one.commit([], {partition: Progress("id", TableRange(0, 10))})
    with pytest.raises(ConcurrentCommit):
        other.commit([], {partition: Progress("id", TableRange(0, 20))})
    other.refresh()
    assert other.archived(partition, "id") == (0, 10)
    other.commit([], {partition: Progress("id", TableRange(0, 20))})
    assert ArchiveTable.create(TableLocation(uri)).archived(partition, "id") == (0, 20)


def test_what_others_commit_to_the_table_is_no_conflict(uri: str) -> None:
    one = ArchiveTable.create(TableLocation(uri))
    DeltaTable(uri).create_write_transaction(
        [],
        "append",
        DeltaTable(uri).schema(),
        commit_properties=CommitProperties(app_transactions=[Transaction("x", 1)]),
    )
    one.commit([], {TopicPartition("t", 0): Progress("id", TableRange(0, 10))})
    assert DeltaTable(uri).version() == 2


def test_how_far_the_table_is_outlives_a_checkpoint_and_the_commits_before_it(uri: str) -> None:
    table = ArchiveTable.create(TableLocation(uri))
    table.commit([], {TopicPartition("t", 0): Progress("id", TableRange(5, 8))})
    table.refresh()
    table.commit([], {TopicPartition("t", 0): Progress("id", TableRange(5, 10), gap=TableRange(8, 9))})
    DeltaTable(uri).create_checkpoint()
    for commit in Path(uri, "_delta_log").glob("*.json"):
        commit.unlink()
    found = ArchiveTable.open(TableLocation(uri))
    assert found is not None
    assert found.archived(TopicPartition("t", 0), "id") == (5, 10)
    assert found.gaps(TopicPartition("t", 0)) == [(8, 9)]


def rows_at(offsets: list[int], times_us: list[int]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "topic": ["t"] * len(offsets),
            "partition": pa.array([0] * len(offsets), pa.int32()),
            "offset": offsets,
            "timestamp": pa.array(times_us, pa.timestamp("us", "UTC")),
            "value": [bytes(100)] * len(offsets),
        }
    )


def test_timestamps_all_over_the_calendar_take_bounded_files_and_memory(tmp_path: Path) -> None:
    writing = DatedFiles(TableLocation(str(tmp_path)), TopicPartition("t", 0), waiting_bytes=10_000, most_open=4)
    day = 86_400_000_000
    far = 2**62  # in a year that no date can name
    for first in range(0, 1000, 50):
        offsets = list(range(first, first + 50))
        writing.add(rows_at(offsets, [far if i % 10 == 0 else i % 7 * day - 1 for i in offsets]))
        open_now = sum(each.writer is not None for each in writing._days.values())
        assert open_now <= 4
        assert writing._waiting <= 10_000
    files = writing.finish()
    assert sum(file.records for file in files) == 1000
    assert {file.date for file in files} == {None, "1969-12-31", *(f"1970-01-0{n}" for n in range(1, 7))}
    assert all(Path(tmp_path, file.path).stat().st_size == file.size_bytes for file in files)
    assert all(file.timestamp_last is None for file in files if file.date is None)


def test_rows_that_wait_hold_on_to_no_others_and_those_without_a_date_share_two_days() -> None:
    near, far = [0] * 5000, [2**62 + number * 86_400_000_000 for number in range(10)]
    parts = dict(by_day(rows_at(list(range(5020)), [*near, *far, *(-time for time in far)])))

    assert [rows.num_rows for _, rows in sorted(parts.items())] == [10, 5000, 10]
    assert all(part.get_total_buffer_size() < 10_000 for day, part in parts.items() if day)


@pytest.mark.parametrize(
    ("day", "date"),
    [(0, "1970-01-01"), (-1, "1969-12-31"), (2_932_896, "9999-12-31"), (2_932_897, None), (-(2**40), None)],
)
def test_a_day_is_a_date_as_far_as_dates_go(day: int, date: str | None) -> None:
    assert date_of(day) == date


def test_the_broker_deletes_only_what_lies_below_the_log_start_of_an_archived_topic(topics: Topics, uri: str) -> None:
    config = {"internal_segment_bytes": 1500, "retention_ms": 1}
    kept, plain = topics.create(retention_archive=uri, **config), topics.create(**config)
    for name in (kept, plain):
        fill_days(topics, name, 60)

    def segments(topic: str) -> tuple[SegmentDescription, ...]:
        return describe(topics, topic)[TopicPartition(topic, 0)].segments

    wait_until(lambda: len(segments(plain)) == 1, "retention has deleted all it may")
    log = describe(topics, kept)[TopicPartition(kept, 0)]
    assert log.log_start_offset == 0
    assert len(log.segments) > 1
    topics.delete_before(kept, 60)  # as the job does, once all of it is archived
    wait_until(lambda: segments(kept)[0].base_offset == 60, "what was archived is deleted")
