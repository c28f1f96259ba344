"""Reads of committed records beside open and aborted transactions, in batches and streams."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from sparklog.base.errors import ConfigError, CorruptRecord
from sparklog.base.fs import LocalFs
from sparklog.base.ids import TopicPartition
from sparklog.client import Producer
from sparklog.log.files import TXN_INDEX
from sparklog.log.segment.segment_writer import _IndexFile
from sparklog.spark.columns import table_schema
from sparklog.spark.history.archive_files import DatedFiles, TableLocation
from sparklog.spark.history.archive_table import FILE_SCHEMA, ArchiveTable
from sparklog.spark.history.progress import Progress, TableRange
from sparklog.spark.source.option_parsing import parse_read_options
from sparklog.spark.source.option_table import OptionUse
from sparklog.spark.source.read import read_task
from sparklog.spark.source.stream import TopicStreamReader
from support.logs.transactional_folder import TransactionalFolder
from support.patience import PATIENCE_S
from support.spark_topics import make_reader, rows_of

pytestmark = pytest.mark.slow

ENTRY_BYTES = 34
UNCOMMITTED = {"kafka.isolation.level": "read_uncommitted"}


@pytest.fixture
def log(tmp_path) -> TransactionalFolder:
    """Three segments: producer 1 aborts across two of them, 2 commits across all, 3 is in its second transaction."""
    return written(tmp_path / "logs")


def written(place: Path) -> TransactionalFolder:
    place.mkdir()
    folder = TransactionalFolder(LocalFs(), str(place / "orders-0"))
    folder.write()
    folder.write(1)
    folder.write(2)
    folder.roll()
    folder.write(3)
    folder.write(1)
    folder.finish(3, commit=True)
    folder.write()
    folder.finish(1, commit=False)
    folder.roll()
    folder.write(2)
    folder.finish(2, commit=True)
    folder.write(3)
    folder.write()
    folder.checkpoint()
    return folder


def batch(folder: TransactionalFolder, **options: str):
    return make_reader({"path": folder.folder, **options})


def offsets(rows) -> list[int]:
    assert all(row["value"] == b"%d" % row["offset"] for row in rows)
    return [row["offset"] for row in rows]


def test_rows_are_those_of_committed_transactions_up_to_the_first_open_one(log):
    assert offsets(rows_of(batch(log))) == log.readable == [0, 1, 4, 5, 6, 7, 11, 12, 14, 15]
    assert offsets(rows_of(batch(log, **UNCOMMITTED))) == log.records
    log.finish(3, commit=True)
    log.checkpoint()
    assert offsets(rows_of(batch(log))) == log.readable != log.records


@pytest.mark.parametrize("cut", [{"minPartitions": "7"}, {"maxRecordsPerPartition": "3"}])
def test_every_task_skips_what_was_aborted(log, cut):
    reader = batch(log, **cut)
    tasks = reader.partitions()
    assert len(tasks) > 3
    assert sorted(offsets(rows_of(reader, tasks))) == log.readable


def test_records_below_the_end_may_have_been_aborted_above_it(log):
    assert offsets(rows_of(batch(log, endingOffsets='{"orders": {"0": 5}}'))) == [0, 1, 4]


def test_a_transaction_whose_marker_is_above_the_high_watermark_is_open(log):
    log.checkpoint(13)
    assert offsets(rows_of(batch(log))) == [0, 1]
    with pytest.raises(ConfigError, match="up to offset 10, but a transaction is open from offset 2 on"):
        batch(log, endingOffsets='{"orders": {"0": 10}}').partitions()


def test_files_that_are_replaced_after_the_plan_change_nothing(log):
    reader = batch(log)
    tasks = reader.partitions()
    for index in Path(log.folder).glob(f"*{TXN_INDEX}"):
        index.unlink()
    assert offsets(rows_of(reader, tasks)) == log.readable


def test_a_transaction_index_that_is_missing_shows_no_aborted_records_silently(log):
    for index in Path(log.folder).glob(f"*{TXN_INDEX}"):
        index.unlink()
    reader = batch(log, minPartitions="5")
    with pytest.raises(CorruptRecord, match="orders-0: the transaction that was aborted at offset 13 is missing"):
        rows_of(reader)
    assert offsets(rows_of(batch(log, **UNCOMMITTED))) == log.records


@pytest.mark.parametrize("end", [3, 5, 10])
def test_a_missing_transaction_index_is_noticed_in_ranges_that_end_before_the_marker(log, end):
    reader = batch(log, endingOffsets=json.dumps({"orders": {"0": end}}))
    for index in Path(log.folder).glob(f"*{TXN_INDEX}"):
        index.unlink()
    with pytest.raises(CorruptRecord, match="orders-0: the transaction that was aborted at offset 13 is missing"):
        rows_of(reader)


def test_aborted_records_are_not_returned_while_the_broker_cannot_write_their_index(topics, monkeypatch):
    """The broker writes the entry later; the log has the marker already, and the stream's range ends before it."""
    topic, write = topics.create(), _IndexFile.append

    def without_descriptors(self: _IndexFile, data: bytes) -> None:
        if len(data) == ENTRY_BYTES:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        write(self, data)

    options = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic, "maxOffsetsPerTrigger": "3"}
    parsed = parse_read_options({**options, "startingOffsets": "earliest"}, OptionUse.STREAM)
    reader = TopicStreamReader(parsed, table_schema(include_headers=False))
    start = reader.initialOffset()

    def read() -> list[bytes]:
        tasks = reader.partitions(start, reader.latestOffset(start, ReadMaxRows(3)))
        return [row["value"] for task in tasks for rows in reader.read(task) for row in rows.to_pylist()]

    with (
        monkeypatch.context() as patched,
        Producer(bootstrap_servers=topics.bootstrap, transactional_id=topic) as producer,
    ):
        patched.setattr(_IndexFile, "append", without_descriptors)
        producer.begin()
        producer.send_table(topic, pa.table({"value": ["aborted"] * 5}), partition=0).result(PATIENCE_S)
        producer.abort()
        topics.fill(topic, 1)
        with pytest.raises(CorruptRecord, match=f"{topic}-0: the transaction that was aborted at offset 5 is missing"):
            read()
    with Producer(bootstrap_servers=topics.bootstrap, transactional_id=topic) as producer:
        producer.begin()
        producer.send_table(topic, pa.table({"value": ["later"]}), partition=0).result(PATIENCE_S)
        producer.abort()  # writes both entries
    assert read() == []


def test_a_marker_that_aborts_nothing_here_is_in_no_index(log):
    log.finish(3, commit=True)
    log.finish(4, commit=False)
    log.roll()
    log.checkpoint()
    assert offsets(rows_of(batch(log))) == log.readable


@given(st.data())
def test_any_history_cut_anyhow_gives_what_a_reader_of_single_records_keeps(tmp_path_factory, data):
    folder = TransactionalFolder(LocalFs(), str(tmp_path_factory.mktemp("logs") / "orders-0"))
    folder.write()
    for _ in range(data.draw(st.integers(1, 25))):
        producer_id = data.draw(st.integers(1, 3))
        step = data.draw(st.sampled_from(["write", "write", "plain", "commit", "abort", "roll"]))
        if step == "write":
            folder.write(producer_id, count=data.draw(st.integers(1, 3)))
        elif step == "plain":
            folder.write()
        elif step == "roll":
            folder.roll()
        else:
            folder.finish(producer_id, commit=step == "commit")
    folder.checkpoint()
    start = data.draw(st.integers(0, folder.last_stable_offset))
    reader = batch(
        folder, startingOffsets=json.dumps({"orders": {"0": start}}), minPartitions=str(data.draw(st.integers(1, 5)))
    )
    assert offsets(rows_of(reader)) == [offset for offset in folder.readable if offset >= start]


# Streams


def stream_reader(folder: TransactionalFolder, **options: str) -> TopicStreamReader:
    given = {"path": folder.folder, "startingOffsets": "earliest", **options}
    return TopicStreamReader(parse_read_options(given, OptionUse.STREAM), table_schema(include_headers=False))


def at(offset: int) -> dict:
    return {"orders": {"0": offset}}


def read_trigger(reader, start, end) -> list[int]:
    return offsets(
        [row for task in reader.partitions(start, end) for rows in reader.read(task) for row in rows.to_pylist()]
    )


def test_rows_of_an_open_transaction_come_after_its_marker(log):
    reader = stream_reader(log)
    end = reader.latestOffset(at(1), ReadAllAvailable())
    assert end == at(17) == at(log.last_stable_offset)
    assert read_trigger(reader, at(1), end) == [offset for offset in log.readable if offset]
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    log.finish(3, commit=True)
    log.checkpoint()
    later = reader.latestOffset(end, ReadAllAvailable())
    assert later == at(log.end)
    assert read_trigger(reader, end, later) == [17, 18, 19, 20]


def test_latest_is_the_last_stable_offset(log):
    assert stream_reader(log, startingOffsets="latest").initialOffset() == at(17)
    assert stream_reader(log, startingOffsets="latest", **UNCOMMITTED).initialOffset() == at(21)


def test_a_query_that_came_further_when_it_read_uncommitted_waits(log):
    reader = stream_reader(log)
    assert reader.latestOffset(at(19), ReadAllAvailable()) == at(19)
    assert reader.partitions(at(19), at(19)) == []
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(at(19), ReadMaxRows(5)) == at(19)
    log.finish(3, commit=False)
    log.checkpoint()
    reader = stream_reader(log)
    end = reader.latestOffset(at(19), ReadAllAvailable())
    assert read_trigger(reader, at(19), end) == [19, 20]


@given(st.data())
def test_triggers_lose_and_double_nothing(tmp_path_factory, data):
    folder = TransactionalFolder(LocalFs(), str(tmp_path_factory.mktemp("logs") / "orders-0"))
    folder.write()
    folder.checkpoint()
    reader, start, seen = stream_reader(folder), at(0), []
    for _ in range(data.draw(st.integers(1, 15))):
        producer_id = data.draw(st.integers(1, 3))
        step = data.draw(st.sampled_from(["write", "write", "plain", "commit", "abort", "roll", "restart", "trigger"]))
        if step == "write":
            folder.write(producer_id)
        elif step == "plain":
            folder.write()
        elif step == "roll":
            folder.roll()
        elif step == "restart":
            reader = stream_reader(folder)
        elif step == "trigger":
            folder.checkpoint()
            end = reader.latestOffset(start, data.draw(st.sampled_from([ReadAllAvailable(), ReadMaxRows(3)])))
            end.pop("@start", None)
            assert end["orders"]["0"] <= folder.last_stable_offset
            seen += read_trigger(reader, start, end)
            start = end
        else:
            folder.finish(producer_id, commit=step == "commit")
    for producer_id in list(folder.open):
        folder.finish(producer_id, commit=True)
    folder.checkpoint()
    seen += read_trigger(reader, start, {**reader.latestOffset(start, ReadAllAvailable())})
    assert seen == folder.readable


def test_a_query_in_spark_reads_each_committed_record_once(spark, log, tmp_path):
    stream = spark.readStream.format("sparklog").option("startingOffsets", "earliest").load(log.folder)
    out, checkpoint = str(tmp_path / "out"), tmp_path / "checkpoint"
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))

    def run() -> list[int]:
        assert writer.trigger(availableNow=True).start(out).awaitTermination(PATIENCE_S)
        return [row.offset for row in spark.read.parquet(out).select("offset").orderBy("offset").collect()]

    assert run() == log.readable
    ends = [json.loads(each.read_text().splitlines()[-1]) for each in (checkpoint / "offsets").glob("[0-9]*")]
    assert max(end["orders"]["0"] for end in ends) == log.last_stable_offset
    log.finish(3, commit=True)
    log.checkpoint()
    assert run() == log.readable


# History


def test_archive_and_log_meet_within_transactions(log, tmp_path):
    """Producer 1's aborted transaction and producer 2's committed one have records on both sides of the seam."""
    partition, seam = TopicPartition("orders", 0), 9
    place = TableLocation(str(tmp_path / "archive"))
    files = DatedFiles(place, partition)
    reader = make_reader(
        {"path": log.folder, "endingOffsets": json.dumps(at(seam)), "includeHeaders": "true"}, headers=True
    )
    for task in reader.partitions():
        for rows in read_task(task, reader._options, FILE_SCHEMA):
            files.add(rows)
    ArchiveTable.create(place).commit(files.finish(), {partition: Progress("", TableRange(0, seam))})
    history = {"readMode": "history", "archive": place.uri}
    assert offsets(rows_of(batch(log, **history))) == log.readable
    later = {**history, "startingOffsets": json.dumps(at(seam + 1))}
    assert offsets(rows_of(batch(log, **later))) == [offset for offset in log.readable if offset > seam]
    log.finish(3, commit=True)
    log.checkpoint()
    assert offsets(rows_of(batch(log, **history))) == log.readable
