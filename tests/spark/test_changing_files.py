"""Reads of a plan after the log has changed."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from sparklog.base.errors import ConfigError, DataLost
from sparklog.base.ids import TopicPartition
from sparklog.spark.folders import open_lookup
from sparklog.spark.source.option_parsing import parse_read_options
from sparklog.spark.source.option_table import OptionUse
from sparklog.spark.source.scan import FilesTask
from sparklog.testing import start_broker
from support import GOLDEN
from support.patience import PATIENCE_S, wait_until
from support.spark_topics import Topics, make_reader, rows_of

pytestmark = pytest.mark.slow

NEVER_MS = 2**40


def from_files(topics, topic, **options):
    return make_reader({"bootstrap.servers": topics.bootstrap, "subscribe": topic, "readMode": "segments", **options})


def from_path(topics, topic, **options):
    return make_reader({"path": topics.folder(topic), **options})


def offsets(rows) -> list[int]:
    return [row["offset"] for row in rows]


def await_gone(path: Path) -> None:
    """Wait until the broker has removed a file."""
    wait_until(lambda: not path.exists(), f"{path} is gone")


@pytest.fixture
def log(tmp_path):
    """A log directory with one partition that Kafka wrote, and its checkpointed high watermark."""

    def make(name: str, high_watermarks: str | None = None) -> str:
        shutil.copytree(GOLDEN / name, tmp_path / "log" / name)
        if high_watermarks is not None:
            (tmp_path / "log" / "replication-offset-checkpoint").write_text(high_watermarks)
        return str(tmp_path / "log")

    return make


def test_nothing_above_the_checkpointed_high_watermark_is_shown(log):
    path = log("codec-zstd-0", "0\n1\ncodec-zstd 0 117\n")
    assert offsets(rows_of(make_reader({"path": path}))) == list(range(117))


def test_a_partition_without_a_checkpointed_high_watermark_has_nothing_committed(log):
    assert rows_of(make_reader({"path": log("codec-none-0", "0\n1\nanother 0 50\n")})) == []


def test_what_is_truncated_above_the_high_watermark_was_never_read(log):
    path = log("segments-0", "0\n1\nsegments 0 900\n")
    reader = make_reader({"path": path})
    tasks = reader.partitions()
    for file in Path(path, "segments-0").iterdir():
        if file.name[:20].isdigit() and int(file.name[:20]) >= 960:
            file.unlink()
    assert offsets(rows_of(reader, tasks)) == list(range(900))


def test_compaction_between_plan_and_read_leaves_what_it_left(log):
    path = log("compacted-before-0")
    reader = make_reader({"path": path, "minPartitions": "5"})
    tasks = reader.partitions()
    folder = Path(path, "compacted-before-0")
    shutil.rmtree(folder)
    shutil.copytree(GOLDEN / "compacted-0", folder)
    lines = (GOLDEN / "compacted-0" / "expected.jsonl").read_text().splitlines()
    assert offsets(rows_of(reader, tasks)) == [json.loads(line)["offset"] for line in lines]


@pytest.mark.parametrize("make", [from_files, from_path])
def test_what_is_appended_and_rolled_after_the_plan_is_not_read(topics, make):
    topic = topics.create(internal_segment_bytes=2048)
    topics.fill(topic, 100, batches=10)
    topics.await_checkpoint(topic, 100)
    reader = make(topics, topic, endingOffsets=json.dumps({topic: {"0": 100}}))
    tasks = reader.partitions()
    topics.fill(topic, 300, batches=30)
    assert offsets(rows_of(reader, tasks)) == list(range(100))


@pytest.mark.parametrize("make", [from_files, from_path])
def test_deleted_segments_are_read_while_their_files_are_still_there(topics, make):
    topic = topics.create(internal_segment_bytes=2048, file_delete_delay_ms=NEVER_MS)
    topics.fill(topic, 400, batches=40)
    topics.await_checkpoint(topic, 400)
    reader = make(topics, topic, endingOffsets=json.dumps({topic: {"0": 400}}), minPartitions="4")
    tasks = reader.partitions()
    topics.delete_before(topic, 395)
    await_gone(Path(topics.folder(topic), f"{0:020d}.log"))
    assert offsets(rows_of(reader, tasks)) == list(range(400))


@pytest.mark.parametrize("make", [from_files, from_path])
def test_records_that_are_gone_fail_the_read_or_are_left_out(topics, make):
    topic = topics.create(internal_segment_bytes=2048, file_delete_delay_ms=0)
    topics.fill(topic, 400, batches=40)
    topics.await_checkpoint(topic, 400)
    strict = make(topics, topic, endingOffsets=json.dumps({topic: {"0": 400}}))
    lenient = make(topics, topic, endingOffsets=json.dumps({topic: {"0": 400}}), failOnDataLoss="false")
    strict_tasks, lenient_tasks = strict.partitions(), lenient.partitions()
    topics.delete_before(topic, 300)
    folder = Path(topics.folder(topic))
    await_gone(folder / f"{0:020d}.log")
    for expired in folder.glob("*.deleted"):  # as the broker does, but for its patience
        expired.unlink()
    with pytest.raises(DataLost, match="are gone"):
        rows_of(strict, strict_tasks)
    left = offsets(rows_of(lenient, lenient_tasks))
    assert left == list(range(left[0], 400))
    assert 0 < left[0] <= 300


def test_a_task_that_does_not_see_the_folder_fetches(topics, tmp_path):
    topic = topics.create()
    topics.fill(topic, 50)
    reader = from_files(topics, topic)
    [task] = reader.partitions()
    elsewhere = replace(task, folder=str(tmp_path / "nowhere" / f"{topic}-0"))
    assert offsets(rows_of(reader, [elsewhere])) == list(range(50))


def test_a_task_that_sees_another_broker_s_folder_fetches(topics, tmp_path):
    """Brokers on several hosts use the same path, and Spark's executors run beside them."""
    topic, other = topics.create(), topics.create()
    topics.fill(topic, 50)
    topics.producer.send_table(other, pa.table({"value": ["not committed"] * 50})).result()
    shutil.copytree(topics.folder(other), tmp_path / f"{topic}-0")
    meta = (topics.broker.data_dir / "meta.properties").read_text()
    (tmp_path / "meta.properties").write_text(re.sub("node.id=.*", "node.id=77", meta))
    reader = from_files(topics, topic)
    [task] = reader.partitions()

    rows = rows_of(reader, [replace(task, folder=str(tmp_path / f"{topic}-0"))])

    assert [row["value"] for row in rows] == [f"v{number}".encode() for number in range(50)]


@pytest.mark.parametrize("mode", ["true", "false"])
@pytest.mark.parametrize("there", [None, "77"])
def test_a_path_that_an_executor_does_not_see_fails_the_read_and_names_the_host(topics, tmp_path, mode, there):
    topic = topics.create()
    topics.fill(topic, 50)
    topics.await_checkpoint(topic, 50)
    reader = from_path(topics, topic, failOnDataLoss=mode)
    [task] = reader.partitions()
    if there:
        shutil.copytree(topics.folder(topic), tmp_path / f"{topic}-0")
        meta = (topics.broker.data_dir / "meta.properties").read_text()
        (tmp_path / "meta.properties").write_text(re.sub("node.id=.*", f"node.id={there}", meta))
    elsewhere = replace(task, folder=str(tmp_path / f"{topic}-0"))

    seen = "has that of broker 77" if there else "does not"
    with pytest.raises(ConfigError, match=f"the executor on {re.escape(socket.gethostname())} {seen}"):
        rows_of(reader, [elsewhere])


def test_a_replica_that_has_moved_to_another_log_directory_is_read_there(tmp_path):
    dirs = [str(tmp_path / name) for name in ("disk1", "disk2")]
    with start_broker(tmp_path, log_dirs=tuple(dirs), log_segment_delete_delay_ms=0) as broker:
        topics = Topics(broker)
        topic = topics.create(internal_segment_bytes=2048)
        topics.fill(topic, 400, batches=40)
        partition = TopicPartition(topic, 0)
        reader = from_files(topics, topic, minPartitions="4")
        tasks = reader.partitions()
        lookup = open_lookup(
            parse_read_options({"bootstrap.servers": topics.bootstrap, "subscribe": topic}, OptionUse.BATCH)
        )
        home = lookup.folder(partition)
        [target] = {*dirs} - {str(Path(home).parent)}

        assert topics.admin.alter_replica_log_dirs({(partition, 0): target}) == {}
        await_gone(Path(home))

        assert offsets(rows_of(reader, tasks)) == list(range(400))
        assert lookup.folder(partition) == f"{target}/{topic}-0"
        assert {task.folder for task in from_files(topics, topic).partitions()} == {f"{target}/{topic}-0"}
        lookup.close()
        topics.close()


def test_files_of_another_broker_are_not_taken_for_this_ones(topics, monkeypatch):
    topic = topics.create()
    topics.fill(topic, 5)
    meta = topics.broker.data_dir / "meta.properties"
    own = meta.read_text()
    try:
        meta.write_text(own.replace("cluster.id=", "cluster.id=another-"))
        with pytest.raises(ConfigError, match=f"no broker's log directory with {topic}-0 can be seen"):
            from_files(topics, topic).partitions()
        auto = make_reader({"bootstrap.servers": topics.bootstrap, "subscribe": topic})
        assert not isinstance(auto.partitions()[0], FilesTask)
        assert len(rows_of(auto)) == 5
    finally:
        meta.write_text(own)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["segments", "fetch"])
def test_reads_are_right_while_the_broker_appends_rolls_and_deletes(topics, mode):
    topic = topics.create(internal_segment_bytes=8192, retention_bytes=50_000, file_delete_delay_ms=0)
    stop = threading.Event()

    def produce():
        first = 0
        while not stop.is_set():
            values = pa.table({"value": [str(offset) for offset in range(first, first + 100)]})
            topics.producer.send_table(topic, values, partition=0).result(PATIENCE_S)
            first += 100

    producing = threading.Thread(target=produce)
    producing.start()
    reads = []

    def read_until_much_was_deleted() -> bool:
        reader = from_files(topics, topic, readMode=mode, failOnDataLoss="false", minPartitions="3")
        rows = rows_of(reader)
        found = offsets(rows)
        assert [int(row["value"]) for row in rows] == found
        assert found == sorted(set(found))
        partition = TopicPartition(topic, 0)
        assert not found or found[-1] < topics.admin.list_offsets({partition: "latest"})[partition].offset
        reads.append(found)
        return len(reads) > 20 and any(found and found[0] > 1000 for found in reads)

    try:
        wait_until(read_until_much_was_deleted, "the broker has deleted 1000 records", tell=lambda: len(reads))
    finally:
        stop.set()
        producing.join()


@pytest.mark.slow
def test_a_task_that_reads_segments_loads_no_grpc(log):
    code = """
import pickle, sys
import pyspark_sparklog
reader, tasks = pickle.load(sys.stdin.buffer)
rows = sum(batch.num_rows for task in tasks for batch in reader.read(task))
unwanted = ("grpc", "google.protobuf", "sparklog.client", "sparklog.broker", "pandas")
print(rows, [name for name in unwanted if name in sys.modules])
"""
    reader = make_reader({"path": log("codec-lz4-0")})
    given = cloudpickle.dumps((reader, reader.partitions()))
    done = subprocess.run([sys.executable, "-c", code], input=given, capture_output=True, check=True)
    assert done.stdout.decode() == "200 []\n"
