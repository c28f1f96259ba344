"""Streams that begin in the archive and continue in the log: each record once, through moves, crashes and restarts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadMaxRows

from sparklog.base.errors import ConfigError, DataLost
from sparklog.base.ids import TopicPartition
from sparklog.spark.columns import table_schema
from sparklog.spark.history.archive_files import FilePart
from sparklog.spark.history.backlog import HistoryBacklog, disjoint_pieces
from sparklog.spark.source.backlog import EstimatedBacklog, FilePiece
from sparklog.spark.source.offsets import PartitionRange
from sparklog.spark.source.option_parsing import parse_read_options
from sparklog.spark.source.option_table import OptionUse
from sparklog.spark.source.stream import TopicStreamReader
from support import environment
from support.jobs.archives import DAY_MS, FIRST_DAY_MS, archive_closed, fill_days
from support.patience import PATIENCE_S, wait_until
from support.runs.seeds import examples
from support.spark_topics import Topics

pytestmark = pytest.mark.slow

Json = dict[str, Any]
Rows = list[dict[str, Any]]


class Query:
    """Asks a reader as Spark does, and keeps the offsets that Spark keeps."""

    def __init__(self, topics: Topics, topic: str, **options: Any) -> None:
        given = {"bootstrap.servers": topics.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        texts = {**given, "readMode": "history", **{name: str(value) for name, value in options.items()}}
        self._options = parse_read_options(texts, OptionUse.STREAM)
        self.batches: list[tuple[Json, Json]] = []
        self.restart()

    def restart(self) -> None:
        """Start a new process that has only the checkpoint."""
        self.reader = TopicStreamReader(self._options, table_schema(include_headers=False))

    def plan(self, limit: int = 0) -> list[Any]:
        """Begin the next batch; return its tasks. limit: most rows; without it, the limits of the options apply."""
        start = self.batches[-1][1] if self.batches else self.reader.initialOffset()
        end = self.reader.latestOffset(start, ReadMaxRows(limit) if limit else self.reader.getDefaultReadLimit())
        if end == start:
            return []
        self.batches.append((start, end))
        return self.again(-1)

    def again(self, number: int) -> list[Any]:
        """The tasks of a batch, planned as of now."""
        return list(self.reader.partitions(*self.batches[number]))

    def read(self, tasks: list[Any]) -> Rows:
        return [row for task in tasks for batch in self.reader.read(task) for row in batch.to_pylist()]


@pytest.fixture
def topic(topics: Topics, tmp_path: Path) -> str:
    """120 records; most are archived, and gone from the log."""
    name = topics.create(internal_segment_bytes=2500, retention_archive=str(tmp_path / "archive"))
    fill_days(topics, name, 120)
    move(topics, name, tmp_path)
    return name


def move(topics: Topics, topic: str, folder: Path) -> int:
    """Archive closed segments and delete them; return where the log begins now."""
    (copied,) = archive_closed(topics, topic, folder / "archive").values()
    assert copied.archived
    topics.delete_before(topic, copied.archived.offset_to)
    return copied.archived.offset_to


def offsets(rows: Rows) -> list[int]:
    return [row["offset"] for row in rows]


def test_a_stream_reads_the_archive_and_then_the_log(topics: Topics, topic: str) -> None:
    query, rows = Query(topics, topic), []
    while tasks := query.plan(limit=17):
        found = query.read(tasks)
        assert 0 < len(found) <= 17
        rows += found
    assert offsets(rows) == list(range(120))
    assert [row["value"] for row in rows] == [b"v%d" % number for number in range(120)]
    fill_days(topics, topic, 10, first=120)
    assert offsets(query.read(query.plan())) == list(range(120, 130))


def test_bytes_of_a_trigger_are_limited_in_the_archive_and_in_the_log(topics: Topics, tmp_path: Path) -> None:
    name = topics.create(internal_segment_bytes=2500, retention_archive=str(tmp_path / "archive"))
    fill_days(topics, name, 120)
    boundary = move(topics, name, tmp_path)
    fill_days(topics, name, 100, first=120)
    size = sum(path.stat().st_size for path in Path(topics.folder(name)).glob("*.log") if int(path.stem) >= boundary)
    query, found = Query(topics, name, maxBytesPerTrigger=size // 4), []
    while tasks := query.plan():
        found.append(offsets(query.read(tasks)))
    assert [offset for batch in found for offset in batch] == list(range(220))
    in_log = [batch for batch in found if batch[0] >= boundary]
    assert 4 <= len(in_log) <= 7  # a quarter of the log at a time, in whole batches of records
    assert len(found) - len(in_log) > 1  # the archive is not read at once either


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 30), st.integers(0, 5_000)), max_size=6),
    st.integers(0, 60), st.integers(1, 40), st.integers(1, 9_000),
)  # fmt: skip
@settings(max_examples=examples(200))
def test_of_archive_and_log_something_is_always_taken_and_more_for_more_bytes(
    files: list[tuple[int, int, int]], low: int, count: int, size: int
) -> None:
    parts = [
        FilePart(path="", size_bytes=bytes_, offset_first=first, offset_last=first + more, alone=True)
        for first, more, bytes_ in sorted(files)
    ]
    pieces = list(disjoint_pieces(parts))
    assert all(before.offset_to <= after.offset_from for before, after in pairwise(pieces))
    assert sum(piece.size_bytes for piece in pieces) == pytest.approx(sum(size for *_, size in files), abs=len(pieces))
    partition = TopicPartition("orders", 0)
    end = low + count + 10
    log = EstimatedBacklog([FilePiece(low + count, end, 1_000)], PartitionRange(partition, low + count, end))
    backlog = HistoryBacklog(PartitionRange(partition, low, low + count), parts, log)
    less, more = backlog.take(size), backlog.take(size + 500)
    assert low < less.offset_to <= more.offset_to <= end
    assert less.size <= more.size <= backlog.size_bytes
    assert backlog.take(backlog.size_bytes + 1).offset_to == end


def test_a_batch_that_runs_again_reads_the_same_wherever_its_records_are(
    topics: Topics, topic: str, tmp_path: Path
) -> None:
    query, read = Query(topics, topic), []
    fill_days(topics, topic, 60, first=120)
    while tasks := query.plan(limit=25):
        read.append(query.read(tasks))
    fill_days(topics, topic, 60, first=180)
    assert move(topics, topic, tmp_path) >= 180
    query.restart()
    assert [query.read(query.again(number)) for number in range(len(read))] == read
    assert offsets(query.read(query.plan())) == list(range(180, 240))


def test_records_that_move_between_plan_and_read_are_read_from_the_archive(
    topics: Topics, topic: str, tmp_path: Path
) -> None:
    query = Query(topics, topic)
    tasks = query.plan()
    fill_days(topics, topic, 60, first=120)
    assert move(topics, topic, tmp_path) > 120
    assert offsets(query.read(tasks)) == list(range(120))


def test_a_stream_may_begin_at_a_time_that_only_the_archive_has(topics: Topics, topic: str) -> None:
    options = {"startingOffsets": "latest", "startingTimestamp": FIRST_DAY_MS + 2 * DAY_MS}
    query = Query(topics, topic, **options)
    rows = query.read(query.plan())
    assert offsets(rows) == list(range(rows[0]["offset"], 120))
    assert 0 < rows[0]["offset"] < 20


def test_what_is_in_neither_is_lost(topics: Topics, topic: str) -> None:
    fill_days(topics, topic, 60, first=120)
    topics.delete_before(topic, 170)
    with pytest.raises(DataLost, match="are neither in the archive nor in the log"):
        Query(topics, topic).plan()
    left = Query(topics, topic, failOnDataLoss="false")
    found = offsets(left.read(left.plan()))
    archived = len(found) - 10
    assert found == [*range(archived), *range(170, 180)]
    assert archived > 60


def test_an_archive_may_come_into_being_while_a_stream_runs(topics: Topics, tmp_path: Path) -> None:
    name = topics.create(internal_segment_bytes=2500, retention_archive=str(tmp_path / "archive"))
    fill_days(topics, name, 60)
    query = Query(topics, name)
    rows = query.read(query.plan(limit=20))
    move(topics, name, tmp_path)
    rows += query.read(query.plan())
    assert offsets(rows) == list(range(60))


def test_an_archive_that_the_stream_names_must_exist(topics: Topics, topic: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no Delta table"):
        Query(topics, topic, archive=tmp_path / "none").plan()


@pytest.fixture(scope="module")
def running(topics: Topics, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A topic that is written to, archived and trimmed all the time."""
    folder = tmp_path_factory.mktemp("running")
    name = topics.create(internal_segment_bytes=2500, retention_archive=str(folder / "archive"))
    fill_days(topics, name, 600)
    move(topics, name, folder)
    stopping = threading.Event()

    def go_on() -> None:
        there = 600
        while not stopping.wait(0.05):
            fill_days(topics, name, 30, first=there)
            there += 30
            move(topics, name, folder)

    moving = threading.Thread(target=go_on)
    moving.start()
    yield name
    stopping.set()
    moving.join(PATIENCE_S)


@settings(max_examples=examples(8))
@given(limits=st.lists(st.integers(1, 400), min_size=1, max_size=8), stops=st.sets(st.integers(0, 8)))
def test_each_record_is_read_once_while_everything_moves(
    topics: Topics, running: str, limits: list[int], stops: set[int]
) -> None:
    query, rows = Query(topics, running), []
    for number, limit in enumerate(limits):
        tasks = query.plan(limit)
        if number in stops and tasks:
            query.restart()
            tasks = query.again(-1)
        rows += query.read(tasks)
    assert offsets(rows) == list(range(len(rows)))
    assert len(rows) >= min(600, sum(limits))


COPY = """
import sys
from sparklog.spark import local_session
bootstrap, topic, out, checkpoint = sys.argv[1:]
spark = local_session("killed", cores=1, memory="512m")
stream = spark.readStream.format("sparklog").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
stream = stream.option("startingOffsets", "earliest").option("readMode", "history").option("maxOffsetsPerTrigger", 10)
writer = stream.load().writeStream.format("delta").option("checkpointLocation", checkpoint)
writer.trigger(processingTime="0 seconds").start(out).awaitTermination()
"""


def test_a_driver_that_is_killed_in_the_archive_loses_and_doubles_nothing(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    command = [sys.executable, "-c", COPY, topics.bootstrap, topic, str(out), str(checkpoint)]
    with (tmp_path / "output").open("wb") as output:
        driver = subprocess.Popen(command, env=environment(), stderr=output, start_new_session=True)

    def written() -> bool:
        assert driver.poll() is None, (tmp_path / "output").read_text()
        try:
            return bool(DeltaTable(str(out)).version() >= 3)
        except TableNotFoundError:
            return False

    try:
        wait_until(written, "the driver has written some batches", every_s=0.05)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait(PATIENCE_S)
    assert 0 < DeltaTable(str(out)).to_pyarrow_table().num_rows < 120
    fill_days(topics, topic, 60, first=120)
    move(topics, topic, tmp_path)
    stream = spark.readStream.format("sparklog").option("kafka.bootstrap.servers", topics.bootstrap)
    stream = stream.option("subscribe", topic).option("startingOffsets", "earliest").option("readMode", "history")
    writer = stream.load().writeStream.format("delta").option("checkpointLocation", str(checkpoint))
    assert writer.trigger(availableNow=True).start(str(out)).awaitTermination(PATIENCE_S)
    assert Counter(DeltaTable(str(out)).to_pyarrow_table()["offset"].to_pylist()) == Counter(range(180))
