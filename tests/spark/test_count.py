"""Counts of topics from headers equal those of a read with the same options."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.base.errors import ConfigError, DataLost
from sparklog.base.fs import LocalFs
from sparklog.base.ids import TopicPartition
from sparklog.client import Producer
from sparklog.spark import count
from support import GOLDEN
from support.logs.transactional_folder import TransactionalFolder
from support.patience import PATIENCE_S
from support.runs.seeds import examples
from support.spark_topics import make_reader, rows_of

pytestmark = pytest.mark.slow

ISOLATION = st.sampled_from(["read_committed", "read_uncommitted"])


def options_of(topics, topic, **options):
    return {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic, **options}


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**32), ISOLATION, st.integers(0, 60), st.integers(0, 60))
def test_transactions_and_bounds_count_as_they_are_read(seed, isolation, start, end):
    with TemporaryDirectory() as place:
        folder = TransactionalFolder(LocalFs(), f"{place}/orders-0")
        write_randomly(folder, random.Random(seed))
        stable = folder.last_stable_offset if isolation == "read_committed" else folder.end
        start, end = sorted((min(start, stable), min(end, stable)))
        options = {
            "path": place,
            "kafka.isolation.level": isolation,
            "startingOffsets": json.dumps({"orders": {"0": start}}),
            "endingOffsets": json.dumps({"orders": {"0": end}}),
        }
        counts = count(options)
        assert counts.total == len(rows_of(make_reader(options)))
        assert counts.partitions == {TopicPartition("orders", 0): counts.total}


def write_randomly(folder: TransactionalFolder, rng: random.Random) -> None:
    folder.write()
    for _ in range(rng.randint(0, 20)):
        chance, producer_id = rng.random(), rng.randrange(3)
        if chance < 0.5:
            folder.write(producer_id, rng.randint(1, 4))
        elif chance < 0.8:
            folder.finish(producer_id, commit=rng.random() < 0.5)
        else:
            folder.roll()
    folder.checkpoint()


@pytest.mark.parametrize("name", sorted(each.name for each in GOLDEN.iterdir() if not each.name.startswith("_")))
def test_folders_of_kafka_count_as_they_are_read(name, tmp_path):
    shutil.copytree(GOLDEN / name, tmp_path / name)
    for isolation in ("read_committed", "read_uncommitted"):
        options = {"path": str(tmp_path), "kafka.isolation.level": isolation}
        assert count(options).total == len(rows_of(make_reader(options))) > 0


@pytest.mark.parametrize("mode", ["segments", "fetch"])
def test_a_topic_counts_as_spark_counts_it(spark, topics, mode):
    topic = topics.create(3, internal_segment_bytes=4096)
    topics.fill(topic, 500, partition=0, batches=50)
    topics.fill(topic, 30, partition=1, batches=3, timestamp=range(1_000, 1_030))
    with Producer(bootstrap_servers=topics.bootstrap, transactional_id=f"{topic}-writer") as producer:
        for ending in (producer.abort, producer.commit):
            producer.begin()
            for _ in range(7):
                producer.send(topic, b"v", partition=1)
            ending()
    topics.delete_before(topic, 13)
    options = options_of(topics, topic, readMode=mode)
    counts = count(options)
    assert [counts.partitions[TopicPartition(topic, number)] for number in range(3)] == [487, 37, 0]
    assert counts.total == spark.read.format("sparklog").options(**options).load().count() == 524
    late = {**options, "startingTimestamp": "1010", "startingOffsetsByTimestampStrategy": "latest"}
    assert count(late).total == spark.read.format("sparklog").options(**late).load().count()


def test_a_large_record_counts_as_one(topics):
    topic = topics.create(max_message_bytes=24 << 20)
    with Producer(bootstrap_servers=topics.bootstrap, max_request_size=24 << 20) as producer:
        producer.send(topic, bytes(20 << 20)).result(PATIENCE_S)
        producer.send(topic, b"small").result(PATIENCE_S)
    assert count(options_of(topics, topic)).total == count(options_of(topics, topic, readMode="fetch")).total == 2


def test_topics_of_a_pattern_are_counted_one_by_one(topics):
    first = topics.create()
    topics.admin.create_topic(f"{first}.more", partitions=2)
    topics.fill(first, 5)
    topics.fill(f"{first}.more", 4, partition=1)
    options = {"kafka.bootstrap.servers": topics.bootstrap, "subscribePattern": f"{first}(\\.more)?"}
    assert count(options).partitions == {(first, 0): 5, (f"{first}.more", 0): 0, (f"{first}.more", 1): 4}


def test_what_is_lost_fails_the_count_or_is_left_out(topics):
    topic = topics.create()
    topics.fill(topic, 10, batches=5)
    topics.delete_before(topic, 4)
    options = options_of(topics, topic, startingOffsets=json.dumps({topic: {"0": 1}}))
    with pytest.raises(DataLost, match="was to be read from offset 1, but begins at 4"):
        count(options)
    assert count({**options, "failOnDataLoss": "false"}).total == 6


def test_a_count_reads_headers_alone(tmp_path):
    """`count` ignores the bytes behind the headers."""
    folder = TransactionalFolder(LocalFs(), str(tmp_path / "orders-0"))
    folder.write(count=100)
    file = Path(folder.path(".log"))
    folder.roll()
    folder.write(count=5)
    folder.checkpoint()
    data = bytearray(file.read_bytes())
    data[61:] = bytes(len(data) - 61)
    file.write_bytes(data)
    assert count({"path": str(tmp_path)}).total == 105


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"readMode": "history"}, "not the archive"),
        ({"valueFormat": "json", "valueSchema": "id bigint", "mode": "DROPMALFORMED"}, "DROPMALFORMED"),
        ({"subscribe": "a", "maxBytesPerTrigger": "5"}, "no meaning for a batch read"),
    ],
)
def test_what_headers_cannot_say_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        count({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "a", **options})
