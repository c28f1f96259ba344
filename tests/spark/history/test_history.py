"""Reads of archive and log as one: no gap and no overlap, from any start, while records move."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual

from sparklog.base.errors import ConfigError, DataLost
from sparklog.base.ids import TopicPartition
from sparklog.spark import broker
from sparklog.spark.explain import IN_ARCHIVE, explain
from sparklog.spark.folders import open_lookup
from sparklog.spark.history import archived
from sparklog.spark.history.archive_files import DatedFiles, FilePart, TableLocation
from sparklog.spark.history.archive_table import FILE_SCHEMA, ArchiveTable
from sparklog.spark.history.archived import ArchiveTask, LogTask, merged, overlapping, read_file
from sparklog.spark.history.progress import Progress, TableRange
from sparklog.spark.source.filters import EVERYTHING
from sparklog.spark.source.offsets import PartitionRange, batch_ranges, report_losses
from sparklog.spark.source.option_parsing import parse_read_options
from sparklog.spark.source.option_table import OptionUse
from sparklog.spark.source.read import read_task
from sparklog.spark.source.scan import FetchTask, FilesTask, plan_tasks
from sparklog.spark.source.source import SparklogDataSource
from support import GOLDEN
from support.jobs.archives import DAY_MS, FIRST_DAY_MS, archive_closed, describe, fill_days
from support.runs.seeds import seeds
from support.spark_topics import Topics, make_reader, rows_of

pytestmark = pytest.mark.slow

Rows = list[dict[str, Any]]


class TrimmedTopic(NamedTuple):
    """A topic whose first records are only in its archive, and all records that were produced to it."""

    topic: str
    uri: str
    rows: Rows
    ends: dict[int, int]
    """How far the archive is, by partition."""


def ordered(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def produced(topics: Topics, topic: str) -> Rows:
    """Return all records in the log."""
    options = {"bootstrap.servers": topics.bootstrap, "subscribe": topic, "includeHeaders": "true"}
    return ordered(rows_of(make_reader(options, headers=True)))


def past(topics: Topics, topic: str, *, filters: Any = (), **options: Any) -> Any:
    """A reader of the topic's whole history."""
    given = {"bootstrap.servers": topics.bootstrap, "subscribe": topic, "includeHeaders": "true", "readMode": "history"}
    return make_reader({**given, **options}, filters=filters, headers=True)


def make_archived(topics: Topics, uri: str, records: int = 120) -> tuple[str, Rows, dict[int, int]]:
    topic = topics.create(2, internal_segment_bytes=2500, retention_archive=uri)
    fill_days(topics, topic, records)
    fill_days(topics, topic, 60, partition=1)
    rows = produced(topics, topic)
    copied = archive_closed(topics, topic, uri)
    return topic, rows, {name.partition: each.archived.offset_to for name, each in copied.items() if each.archived}


@pytest.fixture(scope="module")
def trimmed(topics: Topics, tmp_path_factory: pytest.TempPathFactory) -> TrimmedTopic:
    uri = str(tmp_path_factory.mktemp("history") / "archive")
    topic, rows, ends = make_archived(topics, uri)
    topics.delete_before(topic, ends[0] - 10)
    return TrimmedTopic(topic, uri, rows, ends)


def test_a_trimmed_topic_is_read_whole(topics: Topics, trimmed: TrimmedTopic) -> None:
    assert len(produced(topics, trimmed.topic)) == len(trimmed.rows) - trimmed.ends[0] + 10
    assert ordered(rows_of(past(topics, trimmed.topic))) == trimmed.rows


def test_explain_tells_archive_and_log(topics: Topics, trimmed: TrimmedTopic) -> None:
    options = {"bootstrap.servers": topics.bootstrap, "subscribe": trimmed.topic, "readMode": "history"}
    scan = explain(options)
    assert scan.tasks == len(past(topics, trimmed.topic).partitions())
    for each in scan.partitions:
        end = trimmed.ends[each.partition.partition]
        assert each.archive is not None
        assert (each.archive.uri, each.archive.offset_to, each.archive.tasks) == (trimmed.uri, end, 1)
        assert each.archive.files == each.archive.files_total > 0
        assert each.archive.size_bytes > 0
        assert each.segments + each.left_out.get(IN_ARCHIVE, 0) == each.segments_total
        assert f"  below offset {end} from the archive {trimmed.uri}: {each.archive.files} of " in str(each)
    first = scan.partitions[0]
    assert (first.offset_from, first.offset_to) == (0, 120)
    recent = explain(options, [GreaterThanOrEqual(("offset",), trimmed.ends[0])]).partitions[0]
    assert (recent.archive, recent.offset_from, recent.tasks) == (None, trimmed.ends[0], 1)


def test_values_of_the_archive_and_of_the_log_have_the_same_type(topics: Topics, trimmed: TrimmedTopic) -> None:
    options = {"bootstrap.servers": topics.bootstrap, "subscribe": trimmed.topic, "readMode": "history"}
    source = SparklogDataSource({**options, "valueFormat": "string"})
    rows = ordered(rows_of(source.reader(source.schema())))
    assert [row["value"] for row in rows] == [row["value"].decode() for row in trimmed.rows]


def test_each_task_gives_offsets_in_order_and_the_log_begins_where_the_archive_ends(
    topics: Topics, trimmed: TrimmedTopic
) -> None:
    reader = past(topics, trimmed.topic)
    tasks = reader.partitions()
    assert [type(task) for task in tasks] == [ArchiveTask, ArchiveTask, LogTask, LogTask]
    offsets = [[row["offset"] for row in rows_of(reader, [task])] for task in tasks]
    assert offsets == [
        list(range(trimmed.ends[0])), list(range(trimmed.ends[1])),
        list(range(trimmed.ends[0], 120)), list(range(trimmed.ends[1], 60)),
    ]  # fmt: skip


@pytest.mark.parametrize("options", [{"minPartitions": "9"}, {"maxRecordsPerPartition": "17"}])
def test_it_is_cut_into_as_many_tasks_as_asked(topics: Topics, trimmed: TrimmedTopic, options: dict[str, str]) -> None:
    reader = past(topics, trimmed.topic, **options)
    tasks = reader.partitions()
    assert len(tasks) >= 9
    assert ordered(rows_of(reader, tasks)) == trimmed.rows


def test_offsets_may_begin_and_end_on_either_side(topics: Topics, trimmed: TrimmedTopic) -> None:
    end = trimmed.ends[0]
    for low, high in ((5, 40), (5, end + 7), (end + 2, end + 9), (end, end + 1), (end - 1, end)):
        start, stop = json.dumps({trimmed.topic: {"0": low}}), json.dumps({trimmed.topic: {"0": high}})
        assigned = {"assign": json.dumps({trimmed.topic: [0]}), "startingOffsets": start, "endingOffsets": stop}
        options = {"bootstrap.servers": topics.bootstrap, "readMode": "history", **assigned}
        assert [row["offset"] for row in rows_of(make_reader(options))] == list(range(low, high))


def test_timestamps_are_looked_for_in_the_archive_and_then_in_the_log(topics: Topics, trimmed: TrimmedTopic) -> None:
    rows = [row for row in trimmed.rows if row["partition"] == 0]
    for day in (2, 10, 28):
        moment = datetime.fromtimestamp((FIRST_DAY_MS + day * DAY_MS) / 1000, UTC)
        first = next(row["offset"] for row in rows if row["timestamp"] >= moment)
        timestamps = json.dumps({trimmed.topic: {"0": FIRST_DAY_MS + day * DAY_MS}})
        options = {
            "bootstrap.servers": topics.bootstrap, "assign": json.dumps({trimmed.topic: [0]}), "readMode": "history",
            "startingOffsetsByTimestamp": timestamps,
        }  # fmt: skip
        assert [row["offset"] for row in rows_of(make_reader(options))] == list(range(first, 120))


def test_filters_leave_files_closed(topics: Topics, trimmed: TrimmedTopic) -> None:
    since = datetime.fromtimestamp((FIRST_DAY_MS + 15 * DAY_MS) / 1000, UTC)
    filters = [EqualTo(("partition",), 0), GreaterThanOrEqual(("timestamp",), since)]
    reader = past(topics, trimmed.topic, filters=filters)
    tasks = reader.partitions()
    opened = {file.path for task in tasks if isinstance(task, ArchiveTask) for file in task.files}
    assert opened
    assert all(path.split("/")[0] >= "date=2011-02-10" for path in opened)
    wanted = [row for row in trimmed.rows if row["partition"] == 0 and row["timestamp"] >= since]
    assert [row for row in ordered(rows_of(reader, tasks)) if row["timestamp"] >= since] == wanted


def test_large_records_come_few_at_a_time(tmp_path: Path) -> None:
    partition, rows = TopicPartition("t", 0), 40
    writing = DatedFiles(TableLocation(str(tmp_path)), partition, waiting_bytes=100_000)
    for first in range(0, rows, 10):
        offsets = pa.array(range(first, first + 10), pa.int64())
        times, values = pa.array([0] * 10, pa.timestamp("us", "UTC")), pa.array([bytes(10_000)] * 10)
        writing.add(pa.record_batch([offsets, times, values], ["offset", "timestamp", "value"]))
    (file,) = writing.finish()
    found = FilePart(path=file.path, size_bytes=file.size_bytes, offset_first=0, offset_last=rows - 1, alone=True)

    files, whole = TableLocation(str(tmp_path)).files(), PartitionRange(partition, 0, rows)
    read = list(read_file(files, found, whole, ("offset", "value"), size_bytes=100_000))

    assert [offset for batch in read for offset in batch.column("offset").to_pylist()] == list(range(rows))
    assert max(batch.num_rows for batch in read) < rows / 2


def test_what_moves_on_while_the_archive_is_read_is_read_there_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention takes ten offsets more each time that the task has caught up with the archive."""
    archive, partition = iter(range(20, 60, 10)), TopicPartition("t", 0)

    def log(task: Any, options: Any, *_: Any) -> Iterator[pa.RecordBatch]:
        if task.whole.offset_from < 50:
            report_losses(["gone"], fail=options.fail_on_data_loss)
        yield offsets_from(task.whole)

    def archived_since(_: Any, left: PartitionRange, *, fail: bool) -> ArchiveTask:
        return ArchiveTask(left._replace(offset_to=next(archive)), TableLocation(str(tmp_path)), ())

    monkeypatch.setattr(archived, "_from_log", log)
    monkeypatch.setattr(archived, "_archived_since", archived_since)
    monkeypatch.setattr(archived, "read_archive", lambda task, *_: iter([offsets_from(task.whole)]))
    options = parse_read_options(
        {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "readMode": "history"}, OptionUse.BATCH
    )

    read = archived._read_log(LogTask(FetchTask(PartitionRange(partition, 10, 70)), None, ""), options, ("offset",))

    assert [offset for rows in read for offset in rows.column("offset").to_pylist()] == list(range(10, 70))


def offsets_from(whole: PartitionRange) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(whole.offset_from, whole.offset_to), pa.int64())], ["offset"])


@pytest.mark.parametrize("read_from", [FilesTask, FetchTask])
def test_what_moves_to_the_archive_while_a_read_runs_is_read_there(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_from: type
) -> None:
    if read_from is FetchTask:
        monkeypatch.setattr(broker, "belongs_to", lambda *_: False)
    topic, _, ends = make_archived(topics, str(tmp_path / "archive"), 60)
    fill_days(topics, topic, 120, first=60)
    rows = [row for row in produced(topics, topic) if row["partition"] == 0]
    reader = past(topics, topic)
    tasks = [task for task in reader.partitions() if getattr(task, "task", None) and rows_of_partition(task) == 0]
    assert [type(task.task) for task in tasks] == [read_from]
    archive_closed(topics, topic, tmp_path / "archive")
    moved_to = next(iter(describe(topics, topic).values())).closed_segments[-1].next_offset
    topics.delete_before(topic, moved_to)
    for file in Path(topics.folder(topic)).glob("*.log*"):
        if int(file.name[:20]) < moved_to and read_from is FilesTask:
            file.unlink(missing_ok=True)
    assert rows_of(reader, tasks) == rows[ends[0] :]


def test_what_goes_before_it_is_archived_is_lost_to_a_read_that_runs(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "belongs_to", lambda *_: False)
    topic, _, ends = make_archived(topics, str(tmp_path / "archive"), 60)
    fill_days(topics, topic, 120, first=60)
    rows = [row for row in produced(topics, topic) if row["partition"] == 0]
    strict, lenient = past(topics, topic), past(topics, topic, failOnDataLoss="false")
    tasks = [task for task in strict.partitions() if getattr(task, "task", None) and rows_of_partition(task) == 0]
    topics.delete_before(topic, ends[0] + 5)
    copied = archive_closed(topics, topic, tmp_path / "archive")[TopicPartition(topic, 0)]
    assert copied.archived is not None
    topics.delete_before(topic, copied.archived.offset_to)
    with pytest.raises(DataLost, match=f"{topic}-0: offsets {ends[0]} to {ends[0] + 4} are neither"):
        rows_of(strict, tasks)
    assert rows_of(lenient, tasks) == rows[ends[0] + 5 :]


def rows_of_partition(task: LogTask) -> int:
    inner = task.task
    return inner.partition.partition if isinstance(inner, FilesTask) else inner.whole.partition.partition


def test_what_is_in_neither_is_lost(topics: Topics, tmp_path: Path) -> None:
    topic, rows, ends = make_archived(topics, str(tmp_path / "archive"))
    topics.delete_before(topic, ends[0] + 5)
    with pytest.raises(DataLost, match=f"{topic}-0: offsets {ends[0]} to {ends[0] + 4} are neither in the archive"):
        past(topics, topic).partitions()
    left = [row for row in rows if row["partition"] == 1 or not ends[0] <= row["offset"] < ends[0] + 5]
    assert ordered(rows_of(past(topics, topic, failOnDataLoss="false"))) == left


def test_records_that_went_before_they_were_archived_are_lost_to_every_read(topics: Topics, tmp_path: Path) -> None:
    """The archive goes on behind them, twice."""
    uri = str(tmp_path / "archive")
    topic, rows, ends = make_archived(topics, uri)
    end, gaps = ends[0], []
    for first in (120, 240):
        fill_days(topics, topic, 120, first=first)
        rows += [row for row in produced(topics, topic) if row not in rows]
        gaps.append(range(end, end + 5))
        topics.delete_before(topic, end + 5)
        copied = archive_closed(topics, topic, uri)[TopicPartition(topic, 0)]
        assert copied.archived is not None
        end = copied.archived.offset_to
    for gap in gaps:
        with pytest.raises(DataLost, match=f"{topic}-0: offsets {gap.start} to {gap.stop - 1} are neither"):
            past(topics, topic).partitions()
    left = [row for row in rows if row["partition"] == 1 or not any(row["offset"] in gap for gap in gaps)]
    assert ordered(rows_of(past(topics, topic, failOnDataLoss="false"))) == ordered(left)
    beside = past(
        topics,
        topic,
        startingOffsets=json.dumps({topic: {"0": gaps[0].stop, "1": 0}}),
        endingOffsets=json.dumps({topic: {"0": gaps[1].start, "1": 0}}),
    )
    assert [row["offset"] for row in ordered(rows_of(beside))] == [*range(gaps[0].stop, gaps[1].start)]


def test_an_archive_file_that_is_gone_is_a_loss(topics: Topics, tmp_path: Path) -> None:
    uri = tmp_path / "archive"
    topic, rows, _ = make_archived(topics, str(uri))
    next(uri.glob("date=*/*.parquet")).unlink()
    with pytest.raises(DataLost, match="has lost a file"):
        rows_of(past(topics, topic))
    assert len(rows_of(past(topics, topic, failOnDataLoss="false"))) < len(rows)


def test_an_archive_that_was_rewritten_reads_the_same(topics: Topics, tmp_path: Path) -> None:
    uri = tmp_path / "archive"
    topic, rows, _ = make_archived(topics, str(uri))
    topics.delete_before(topic, 30)
    table = DeltaTable(str(uri))
    table.optimize.z_order(["value"])
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    reader = past(topics, topic)
    tasks = reader.partitions()
    assert not all(file.alone for task in tasks if isinstance(task, ArchiveTask) for file in task.files)
    assert ordered(rows_of(reader, tasks)) == rows


def test_without_an_archive_yet_the_log_is_the_history(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(retention_archive=str(tmp_path / "none"))
    fill_days(topics, topic, 20)
    assert ordered(rows_of(past(topics, topic))) == produced(topics, topic)
    with pytest.raises(ConfigError, match="there is no Delta table"):
        past(topics, topic, archive=str(tmp_path / "none")).partitions()


def test_a_topic_that_is_archived_nowhere_is_refused_unless_the_read_says_where(
    topics: Topics, trimmed: TrimmedTopic
) -> None:
    topic = topics.create()
    fill_days(topics, topic, 20)
    with pytest.raises(ConfigError, match=f"{topic} has no retention.archive"):
        past(topics, topic).partitions()
    assert len(rows_of(past(topics, topic, archive=trimmed.uri))) == 20


@pytest.mark.parametrize(
    ("use", "options", "message"),
    [
        (OptionUse.BATCH, {"archive": "/a"}, "archive has a meaning only with readMode = history"),
        (OptionUse.STREAM, {"archive": "/a"}, "archive has a meaning only with readMode = history"),
    ],
)
def test_options_that_make_no_sense_are_refused(use: OptionUse, options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_read_options({"bootstrap.servers": "h:1", "subscribe": "t", **options}, use)


def test_a_path_needs_an_archive(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="path with readMode = history needs archive"):
        parse_read_options({"path": str(tmp_path), "readMode": "history"}, OptionUse.BATCH)


@pytest.mark.parametrize("skipped", [0, 7])
@pytest.mark.parametrize("name", ["compacted-0", "segments-0", "codec-lz4-0"])
def test_folders_without_a_broker_have_a_history_too(name: str, skipped: int, tmp_path: Path) -> None:
    """Folders of Kafka too, with offsets that compaction has removed, and in any format.

    skipped: how many records the log has before those of the archive
    """
    folder = GOLDEN / name
    given = {"path": str(folder), "includeHeaders": "true"}
    rows = rows_of(make_reader(given, headers=True))
    options = parse_read_options(given, OptionUse.BATCH)
    lookup = open_lookup(options)
    (whole,), _ = batch_ranges(options, lookup)
    begin, boundary = rows[skipped]["offset"] if skipped else 0, rows[len(rows) // 2]["offset"]
    writing = DatedFiles(TableLocation(str(tmp_path / "archive")), whole.partition)
    table = ArchiveTable.create(TableLocation(str(tmp_path / "archive")))
    for task in plan_tasks(options, lookup, [PartitionRange(whole.partition, begin, boundary)], EVERYTHING):
        for batch in read_task(task, options, FILE_SCHEMA):
            writing.add(batch)
    table.commit(writing.finish(), {whole.partition: Progress("", TableRange(begin, boundary))})
    history = {**given, "readMode": "history", "archive": str(tmp_path / "archive")}
    assert rows_of(make_reader(history, headers=True)) == rows


def test_a_worker_that_reads_no_history_loads_neither_deltalake_nor_parquet() -> None:
    code = (
        "import sys, sparklog.spark.source.source; "
        "print([name for name in ('deltalake', 'pyarrow.parquet', 'grpc') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"


def stream(*batches: list[int]) -> Any:
    return iter([pa.record_batch({"offset": pa.array(batch, pa.int64())}) for batch in batches])


def offsets_of(streams: list[Any]) -> list[int]:
    return [offset for batch in merged(streams) for offset in batch.column("offset").to_pylist()]


def test_files_that_overlap_are_merged_by_offset() -> None:
    assert offsets_of([stream([0, 3, 4], [9]), stream([1, 2], [5, 10]), stream()]) == [0, 1, 2, 3, 4, 5, 9, 10]
    shuffled = np.random.default_rng(7).permutation(100).tolist()
    streams = [stream(shuffled[:30], shuffled[30:50]), stream(shuffled[50:51], shuffled[51:])]
    assert sorted(offsets_of(streams)) == list(range(100))


def test_only_files_that_overlap_are_open_together() -> None:
    def file(first: int, last: int) -> FilePart:
        return FilePart(path=f"{first}", size_bytes=1, offset_first=first, offset_last=last, alone=True)

    groups = list(overlapping([file(0, 9), file(3, 20), file(20, 21), file(22, 30), file(31, 31)]))
    assert [[part.path for part in group] for group in groups] == [["0", "3", "20"], ["22"], ["31"]]
    assert list(overlapping([])) == []


def test_a_new_topic_of_an_old_name_has_no_past(topics: Topics, tmp_path: Path) -> None:
    uri = str(tmp_path / "archive")
    topic = topics.create(retention_archive=uri)
    partition = TopicPartition(topic, 0)
    ArchiveTable.create(TableLocation(uri)).commit([], {partition: Progress("earlier", TableRange(0, 100))})
    with pytest.raises(ConfigError, match="of an earlier topic of that name"):
        past(topics, topic).partitions()


@pytest.mark.soak
def test_history_is_whole_in_every_read_while_records_come_and_move(topics: Topics, tmp_path: Path) -> None:
    uri = str(tmp_path / "archive")
    topic = topics.create(internal_segment_bytes=1500, retention_archive=uri)
    fill_days(topics, topic, 60)
    there = 60
    rounds = len(seeds(6, soak=30))
    stopping = threading.Event()

    def move() -> None:
        nonlocal there
        while not stopping.is_set():
            fill_days(topics, topic, 30, first=there)
            there += 30
            (copied,) = archive_closed(topics, topic, uri).values()
            assert copied.archived is not None
            topics.delete_before(topic, copied.archived.offset_to)

    with ThreadPoolExecutor(1) as pool:
        moving = pool.submit(move)
        try:
            for _ in range(rounds):
                before = there
                offsets = [row["offset"] for row in rows_of(past(topics, topic))]
                assert offsets == list(range(len(offsets)))
                assert len(offsets) >= before
        finally:
            stopping.set()
        moving.result(120)
    assert there > 60
