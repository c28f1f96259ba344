"""The errors of failed tasks name topic, partition and offsets, and the place of the records."""

from __future__ import annotations

import logging
import shutil
import traceback
from pathlib import Path

import pytest
from pyspark.errors import PythonException

from sparklog.base.errors import CorruptRecord, DataLost, SparklogError
from sparklog.base.fs import LocalFs
from sparklog.spark import count
from sparklog.spark.columns import table_schema
from sparklog.spark.source.option_parsing import parse_read_options
from sparklog.spark.source.option_table import OptionUse
from sparklog.spark.source.stream import TopicStreamReader
from sparklog.testing import start_broker
from support.logs.transactional_folder import TransactionalFolder
from support.spark_topics import Topics, make_reader, rows_of

pytestmark = pytest.mark.slow


@pytest.fixture
def damaged(tmp_path) -> TransactionalFolder:
    """Three batches in a closed segment, of which the second is damaged, and another segment."""
    folder = TransactionalFolder(LocalFs(), str(tmp_path / "orders-0"))
    for _ in range(3):
        folder.write(count=10)
    file = Path(folder.path(".log"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    folder.roll()
    folder.write(count=10)
    folder.checkpoint()
    return folder


def test_a_damaged_batch(spark, damaged):
    frame = spark.read.format("sparklog").option("path", damaged.folder).load()
    with pytest.raises(PythonException) as failed:
        frame.collect()
    assert "CorruptRecord: batch at offset 10" in str(failed.value)
    assert f"while reading orders-0, offsets 0 to 39, from files in {damaged.folder}" in str(failed.value)


def test_bytes_that_are_no_batch_fail_the_task_of_a_limited_stream_not_its_plan(damaged):
    file = Path(f"{damaged.folder}/{0:020d}.log")
    data = bytearray(file.read_bytes())
    data[len(data) // 3 + 16] = 99  # the magic of the second batch
    file.write_bytes(data)
    options = {"path": damaged.folder, "maxBytesPerTrigger": "1", "startingOffsets": "earliest"}
    reader = TopicStreamReader(parse_read_options(options, OptionUse.STREAM), table_schema(include_headers=False))
    limit, begin = reader.getDefaultReadLimit(), reader.initialOffset()
    first = reader.latestOffset(begin, limit)
    second = reader.latestOffset(first, limit)
    tasks = reader.partitions(first, second)
    told = failure_of(lambda: [rows.num_rows for task in tasks for rows in reader.read(task)], CorruptRecord)
    assert "while reading orders-0, offsets " in told


def test_a_count(damaged):
    file = Path(f"{damaged.folder}/{0:020d}.log")
    data = bytearray(file.read_bytes())
    data[16] = 99
    file.write_bytes(data)
    told = failure_of(lambda: count({"path": damaged.folder}), CorruptRecord)
    assert f"from files in {damaged.folder}" in told


def test_a_folder_that_has_vanished(damaged):
    reader = make_reader({"path": damaged.folder})
    tasks = reader.partitions()
    shutil.rmtree(damaged.folder)
    told = failure_of(lambda: rows_of(reader, tasks), DataLost)
    assert "orders-0: of the offsets 0 to 29, those below 30 are gone" in told
    assert f"while reading orders-0, offsets 0 to 39, from files in {damaged.folder}" in told


@pytest.mark.parametrize("mode", ["segments", "fetch"])
def test_a_broker_that_is_gone(tmp_path, mode):
    options = {"subscribe": "orders", "readMode": mode, "kafkaConsumer.pollTimeoutMs": "1000"}
    with start_broker(tmp_path / "broker") as broker:
        topics = Topics(broker)
        topics.admin.create_topic("orders", partitions=1)
        topics.fill("orders", 10)
        reader = make_reader({"kafka.bootstrap.servers": broker.bootstrap, **options})
        tasks = reader.partitions()
        folder = topics.folder("orders")
        topics.close()
    shutil.rmtree(folder)
    told = failure_of(lambda: rows_of(reader, tasks), SparklogError)
    place = f"from files in {folder}" if mode == "segments" else "by fetching"
    assert f"while reading orders-0, offsets 0 to 9, {place} (brokers {broker.bootstrap})" in told


def test_the_log_of_the_task_says_the_same(damaged, caplog):
    reader = make_reader({"path": damaged.folder})
    with caplog.at_level(logging.ERROR, "sparklog.spark"):
        failure_of(lambda: rows_of(reader), CorruptRecord)
    [line] = caplog.messages
    assert line.startswith(f"reading orders-0, offsets 0 to 39, from files in {damaged.folder} failed: CorruptRecord: ")


def failure_of(read, kind: type[Exception]) -> str:
    """Return the text that Spark prints of the failure."""
    with pytest.raises(kind) as failed:
        read()
    return "".join(traceback.format_exception(failed.value))
