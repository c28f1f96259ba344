"""Merges of small files of an archive: the same records in the same order, beside other writers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from sparklog.base.ids import TopicPartition
from sparklog.spark.columns import table_schema
from sparklog.spark.history import merging
from sparklog.spark.history.archive_files import DatedFiles, FilePart, TableLocation
from sparklog.spark.history.archive_table import ArchiveTable, ConcurrentCommit
from sparklog.spark.history.merging import FEWEST, GROUP_BYTES, SMALL_BYTES, TINY_BYTES, choose, merge_small_files
from sparklog.spark.history.plan import ArchivedPart, first_since
from sparklog.spark.history.progress import Progress, TableRange
from sparklog.spark.spark_api import arrow_schema
from support.jobs.archives import InProcess, archived_rows, named_files, parquet_files
from support.runs.seeds import examples

pytestmark = pytest.mark.slow

DAY_MS = 86_400_000
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
SCHEMA = arrow_schema(table_schema(include_headers=True))


class Archive:
    """A table that gets its records run by run."""

    def __init__(self, place: TableLocation) -> None:
        self.place = place
        self.table = ArchiveTable.create(place)
        self._ends = {FIRST: 0, SECOND: 0}

    def add(self, partition: TopicPartition, times_ms: Sequence[int]) -> None:
        """One run: records at the next offsets, in one commit."""
        start = self._ends[partition]
        numbers = range(start, start + len(times_ms))
        writing = DatedFiles(self.place, partition)
        columns = {
            "topic": [partition.topic] * len(numbers),
            "partition": [partition.partition] * len(numbers),
            "offset": list(numbers),
            "timestamp": [time * 1000 for time in times_ms],
            "timestampType": [0] * len(numbers),
            "key": [b"k%d" % number if number % 3 else None for number in numbers],
            "value": [b"v%d" % number for number in numbers],
            "headers": [[{"key": "n", "value": b"%d" % number}] if number % 2 else [] for number in numbers],
        }
        arrays = [pa.array(columns[field.name], field.type) for field in SCHEMA]
        writing.add(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
        self._ends[partition] = numbers.stop
        self.table.commit(writing.finish(), {partition: Progress("id", TableRange(0, numbers.stop))})
        self.table.refresh()

    def files(self, partition: TopicPartition) -> list[FilePart]:
        self.table.refresh()
        return self.table.files(partition, 0, 1 << 40)

    def merge(self, *partitions: TopicPartition, before_commit: Any = lambda: None) -> dict[TopicPartition, int]:
        return merge_small_files(InProcess(before_commit), self.place, partitions)  # type: ignore[arg-type]


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(TableLocation(str(tmp_path / "archive")))


def same_day(archive: Archive, runs: int, partition: TopicPartition = FIRST) -> None:
    for number in range(runs):
        archive.add(partition, [number * 10, number * 10 + 5, number * 10 + 3])


def test_many_small_files_become_one_with_the_same_records_in_the_order_of_their_offsets(archive: Archive) -> None:
    same_day(archive, FEWEST)
    same_day(archive, FEWEST - 1, SECOND)
    uri = archive.place.uri
    before = archived_rows(uri)

    assert archive.merge(FIRST, SECOND) == {FIRST: FEWEST}

    assert archived_rows(uri) == before
    [merged] = archive.files(FIRST)
    assert (merged.offset_first, merged.offset_last, merged.alone) == (0, 3 * FEWEST - 1, True)
    written = pq.read_table(Path(uri, merged.path))
    assert written["offset"].to_pylist() == list(range(3 * FEWEST))
    assert len(archive.files(SECOND)) == FEWEST - 1
    assert archive.table.archived(FIRST, "id") == (0, 3 * FEWEST)
    assert archive.merge(FIRST, SECOND) == {}


def test_days_are_merged_apart_also_that_of_records_without_a_date(archive: Archive) -> None:
    far_ms = 2**53
    for number in range(FEWEST):
        archive.add(FIRST, [number, DAY_MS + number, far_ms + number] if number else [number, far_ms])
    before = offsets_and_values(archive)

    assert archive.merge(FIRST) == {FIRST: 2 * FEWEST}  # the second day has a file less

    assert offsets_and_values(archive) == before
    days = [file.date for file in archive.files(FIRST)]
    assert sorted(map(str, days)) == ["1970-01-01", *["1970-01-02"] * (FEWEST - 1), "None"]


@settings(max_examples=examples(5), deadline=None)
@given(data=st.data())
def test_a_time_is_found_at_the_same_offset_before_and_after(data: st.DataObject, tmp_path_factory: Any) -> None:
    archive = Archive(TableLocation(str(tmp_path_factory.mktemp("merged") / "archive")))
    times = st.lists(st.integers(0, 40), min_size=1, max_size=3)
    for run in data.draw(st.lists(times, min_size=FEWEST, max_size=FEWEST + 4)):
        archive.add(FIRST, run)
    before = [first_since(past(archive), FIRST, time_ms) for time_ms in range(45)]
    assert archive.merge(FIRST)
    archive.table.refresh()
    assert [first_since(past(archive), FIRST, time_ms) for time_ms in range(45)] == before


def offsets_and_values(archive: Archive) -> list[dict[str, Any]]:
    """Without timestamps, of which Python has none after the year 9999."""
    table = DeltaTable(archive.place.uri).to_pyarrow_table(columns=["offset", "value", "date"])
    rows: list[dict[str, Any]] = table.sort_by("offset").to_pylist()
    return rows


def past(archive: Archive) -> ArchivedPart:
    archived = archive.table.archived(FIRST, "id")
    assert archived is not None
    return ArchivedPart(table=archive.table, archived=archived, topic_id="id")


def test_of_two_merges_of_the_same_files_the_second_does_nothing(archive: Archive) -> None:
    same_day(archive, FEWEST)
    before = archived_rows(archive.place.uri)
    inner: list[dict[TopicPartition, int]] = []

    outer = archive.merge(FIRST, before_commit=lambda: inner.append(archive.merge(FIRST)))

    assert (inner, outer) == ([{FIRST: FEWEST}], {})
    assert archived_rows(archive.place.uri) == before
    assert len(parquet_files(archive.place.uri) - named_files(archive.place.uri)) == FEWEST  # the merged ones alone


def test_a_merge_goes_on_if_another_run_archives_meanwhile(archive: Archive) -> None:
    same_day(archive, FEWEST)

    merged = archive.merge(FIRST, before_commit=lambda: archive.add(SECOND, [1, 2, 3]))

    assert merged == {FIRST: FEWEST}
    assert [row["offset"] for row in archived_rows(archive.place.uri)] == [*range(3 * FEWEST), 0, 1, 2]


def test_a_merge_gives_way_to_a_writer_that_commits_all_the_time(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    same_day(archive, FEWEST)
    table = ArchiveTable.create(archive.place)
    refresh = table.refresh

    def behind() -> None:
        refresh()
        archive.add(SECOND, [1])

    monkeypatch.setattr(table, "refresh", behind)
    archive.add(SECOND, [0])
    with pytest.raises(ConcurrentCommit, match="other writers committed 10 times meanwhile"):
        table.replace(archive.files(FIRST), [])
    assert len(archive.files(FIRST)) == FEWEST


def test_a_group_that_cannot_be_read_stays_and_the_others_are_merged(archive: Archive) -> None:
    same_day(archive, FEWEST)
    same_day(archive, FEWEST, SECOND)
    broken = archive.files(FIRST)[3]
    Path(archive.place.uri, broken.path).write_bytes(b"PAR1 no more")
    said: list[str] = []

    merged = merge_small_files(InProcess(), archive.place, [FIRST, SECOND], said.append)  # type: ignore[arg-type]

    assert merged == {SECOND: FEWEST}
    assert any("t-0: small files could not be merged" in text for text in said)
    assert len(archive.files(FIRST)) == FEWEST


@pytest.mark.jvm
@pytest.mark.slow
def test_an_optimize_that_was_first_is_noticed_and_nothing_is_doubled(spark: SparkSession, archive: Archive) -> None:
    same_day(archive, FEWEST)
    before = archived_rows(archive.place.uri)

    def optimize() -> None:
        spark.sql(f"OPTIMIZE delta.`{archive.place.uri}`")

    assert archive.merge(FIRST, before_commit=optimize) == {}
    assert archived_rows(archive.place.uri) == before
    assert archive.merge(FIRST) == {}  # what is left was merged by others


@pytest.mark.jvm
@pytest.mark.slow
def test_a_stream_from_the_table_gets_each_record_once_and_none_of_a_merge(
    spark: SparkSession, archive: Archive, tmp_path: Path
) -> None:
    def follow() -> None:
        query = (
            spark.readStream.format("delta").load(archive.place.uri).select("offset").writeStream.format("delta")
            .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
            .start(str(tmp_path / "copy"))
        )  # fmt: skip
        query.awaitTermination()

    same_day(archive, FEWEST)
    follow()
    assert merge_small_files(spark, archive.place, [FIRST]) == {FIRST: FEWEST}
    archive.add(FIRST, [7])
    follow()

    copied = DeltaTable(str(tmp_path / "copy")).to_pyarrow_table()["offset"].to_pylist()
    assert sorted(copied) == list(range(3 * FEWEST + 1))


# The choice of files.


def part(offset: int, size_bytes: int, day: int = 0) -> FilePart:
    return FilePart(
        path=f"{offset}", size_bytes=size_bytes, offset_first=offset, offset_last=offset, alone=True, date=f"{day}"
    )


def merged(files: Sequence[FilePart], groups: Iterable[tuple[FilePart, ...]]) -> Iterator[FilePart]:
    """The files after a merge."""
    into = {group[0].path: sum(file.size_bytes for file in group) for group in groups}
    gone = {file.path for group in groups for file in group}
    for file in files:
        if file.path in into:
            yield part(file.offset_first, into[file.path], int(file.date or 0))
        elif file.path not in gone:
            yield file


@given(
    sizes=st.lists(
        st.sampled_from([1, 2, 1000, TINY_BYTES, TINY_BYTES + 1, SMALL_BYTES - 1, SMALL_BYTES]), max_size=60
    ),
    data=st.data(),
)
def test_a_group_is_of_small_files_of_one_day_that_follow_one_another(sizes: list[int], data: st.DataObject) -> None:
    days = data.draw(st.lists(st.integers(0, 2), min_size=len(sizes), max_size=len(sizes)))
    files = [part(offset, size, day) for offset, (size, day) in enumerate(zip(sizes, days, strict=True))]
    for group in choose(files):
        assert len(group) >= FEWEST
        assert len({file.date for file in group}) == 1
        assert all(file.size_bytes < SMALL_BYTES for file in group)
        assert sum(file.size_bytes for file in group) <= GROUP_BYTES
        of_day = [file for file in files if file.date == group[0].date]
        first = of_day.index(group[0])
        assert list(group) == of_day[first : first + len(group)]


@given(sizes=st.lists(st.integers(50_000, 200_000), min_size=200, max_size=600))
def test_few_files_stay_and_records_are_written_again_a_few_times_only(sizes: list[int]) -> None:
    files: list[FilePart] = []
    rewritten = 0
    for offset, size in enumerate(sizes):
        files.append(part(offset, size))
        groups = choose(files)
        rewritten += sum(file.size_bytes for group in groups for file in group)
        files = list(merged(files, groups))
        assert len(files) < 2 * FEWEST
    assert sum(file.size_bytes for file in files) == sum(sizes)
    assert rewritten <= 8 * sum(sizes)


def test_files_that_hold_other_partitions_too_are_left_alone() -> None:
    files = [part(offset, 10) for offset in range(FEWEST)]
    shared = [FilePart(path="x", size_bytes=10, offset_first=0, offset_last=99, alone=False, date="0"), *files[1:]]
    assert choose(shared) == []
    assert choose(files) == [tuple(files)]


def test_one_call_merges_about_as_much_as_it_may(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "RUN_BYTES", 1)
    same_day(archive, FEWEST)
    same_day(archive, FEWEST, SECOND)
    assert archive.merge(FIRST, SECOND) == {FIRST: FEWEST}
    assert archive.merge(FIRST, SECOND) == {SECOND: FEWEST}
