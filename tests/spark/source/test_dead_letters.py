"""Malformed records that a read copies to a topic of dead letters."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.errors import AnalysisException, PythonException

from sparklog.base.errors import ConfigError
from sparklog.records.schema import HEADERS_TYPE
from sparklog.spark.source.dead_letters import with_headers
from sparklog.spark.source.option_parsing import parse_typed_options
from sparklog.spark.source.read import TopicReader
from sparklog.spark.source.source import SparklogDataSource
from support.patience import PATIENCE_S

pytestmark = pytest.mark.slow

JSON = {"valueFormat": "json", "valueSchema": "id int"}
VALUES = [b'{"id": 1}', b"junk", None, b'{"id": 2}', b'{"id": "x"}']


@pytest.fixture
def malformed(topics):
    """A topic with two malformed records, of which the second has headers."""
    topic = topics.create()
    own = [{"key": "own", "value": b"h"}, {"key": "none", "value": None}]
    columns = {
        "value": pa.array(VALUES, pa.binary()),
        "key": pa.array([b"k0", b"k1", b"k2", b"k3", None], pa.binary()),
        "headers": pa.array([own, [], [], own, own], HEADERS_TYPE),
        "timestamp": pa.array([1000, 2000, 3000, 4000, 5000], pa.int64()),
    }
    topics.fill(topic, len(VALUES), **columns)
    return topic


def letters(read, topic):
    """Key, value, timestamp and headers of all dead letters, by the offset that they had."""
    found = []
    for row in read(topic, includeHeaders="true").selectExpr("*", "unix_millis(timestamp) AS ms").collect():
        headers = [(each.key, None if each.value is None else bytes(each.value)) for each in row.headers]
        key = None if row.key is None else bytes(row.key)
        found.append((int(dict(headers)["__connect.errors.offset"]), key, bytes(row.value), row.ms, headers))
    return sorted(found, key=lambda each: each[0])


def expected(topic):
    where = [("__connect.errors.topic", topic.encode()), ("__connect.errors.partition", b"0")]
    junk = [*where, ("__connect.errors.offset", b"1")]
    text = [("own", b"h"), ("none", None), *where, ("__connect.errors.offset", b"4")]
    return [(1, b"k1", b"junk", 2000, junk), (4, None, VALUES[4], 5000, text)]


def without_reasons(found):
    """The letters without their last header, which says what is wrong."""
    for *_, headers in found:
        name, reason = headers[-1]
        assert name == "__connect.errors.exception.message"
        assert reason.startswith(b"the value: it is no JSON object of the schema")
    return [(*rest, headers[:-1]) for *rest, headers in found]


@pytest.mark.parametrize("read_mode", ["segments", "fetch"])
@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_a_batch_copies_malformed_records_with_all_that_they_have(topics, read, malformed, mode, read_mode):
    dead = topics.create()
    table = read(malformed, **JSON, mode=mode, readMode=read_mode, deadLetterTopic=dead)
    rows = sorted(table.selectExpr("offset", "value.id").collect())  # a sort of Spark's would read twice
    kept = [(0, 1), (1, None), (2, None), (3, 2), (4, None)]
    bad = {1, 4} if mode == "DROPMALFORMED" else set()
    assert [tuple(row) for row in rows] == [row for row in kept if row[0] not in bad]
    assert without_reasons(letters(read, dead)) == expected(malformed)


def test_records_are_checked_even_if_the_read_wants_other_columns(spark, topics, read, malformed):
    dead = topics.create()
    reader = spark.read.format("sparklog").option("kafka.bootstrap.servers", topics.bootstrap).options(**JSON)
    reader = reader.option("subscribe", malformed).option("mode", "DROPMALFORMED").option("deadLetterTopic", dead)
    assert sorted(row.offset for row in reader.schema("offset bigint").load().collect()) == [0, 2, 3]
    assert len(letters(read, dead)) == 2


def test_a_stream_copies_each_once_also_when_it_starts_again(spark, topics, read, malformed, tmp_path):
    dead = topics.create()
    stream = spark.readStream.format("sparklog").option("kafka.bootstrap.servers", topics.bootstrap).options(**JSON)
    stream = stream.option("subscribe", malformed).option("startingOffsets", "earliest").option("mode", "DROPMALFORMED")
    stream = stream.option("maxOffsetsPerTrigger", 2).option("deadLetterTopic", dead)

    def run():
        writer = stream.load().select("value.id").writeStream.format("json")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        assert writer.start(str(tmp_path / "out")).awaitTermination(PATIENCE_S)

    run()
    assert without_reasons(letters(read, dead)) == expected(malformed)
    topics.fill(malformed, 2, value=pa.array([b"more junk", b'{"id": 3}'], pa.binary()))
    run()
    assert [(offset, value) for offset, _, value, *_ in letters(read, dead)][2:] == [(5, b"more junk")]
    ids = spark.read.schema("id int").json(str(tmp_path / "out")).where("id IS NOT NULL").collect()
    assert sorted(row.id for row in ids) == [1, 2, 3]


def test_a_letter_that_cannot_be_written_fails_the_query(topics, read, malformed):
    dead = topics.create(max_message_bytes=100)
    with pytest.raises(
        PythonException, match=f"MessageTooLarge(.|\n)*the dead letters of {malformed}-0 cannot be written to {dead}"
    ):
        read(malformed, **JSON, mode="PERMISSIVE", deadLetterTopic=dead).collect()
    assert read(dead).count() == 0


def test_a_record_that_just_fits_its_topic_may_become_a_larger_letter(topics, read):
    topic, dead = topics.create(), topics.create(max_message_bytes=3 << 20)
    topics.fill(topic, 1, value=pa.array([b"x" * ((1 << 20) - 200)], pa.binary()))
    assert read(topic, **JSON, mode="DROPMALFORMED", deadLetterTopic=dead).count() == 0
    assert [len(row.value) for row in read(dead).collect()] == [(1 << 20) - 200]


def test_without_malformed_records_a_task_does_not_connect(topics):
    topic = topics.create()
    topics.fill(topic, 2, value=pa.array([b'{"id": 1}', None], pa.binary()))
    options = {
        "kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic, **JSON, "readMode": "segments",
        "mode": "DROPMALFORMED", "deadLetterTopic": "dead",
    }  # fmt: skip
    source = SparklogDataSource(options)
    reader = source.reader(source.schema())
    assert isinstance(reader, TopicReader)
    code = """
import pickle, sys
import pyspark_sparklog
reader, tasks = pickle.load(sys.stdin.buffer)
rows = sum(batch.num_rows for task in tasks for batch in reader.read(task))
print(rows, [name for name in ("grpc", "sparklog.client") if name in sys.modules])
"""
    sent = cloudpickle.dumps((reader, reader.partitions()))
    done = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True, check=True)
    assert done.stdout.decode() == "2 []\n"


HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3)


@given(st.lists(st.tuples(HEADERS, st.text(max_size=3), st.text(max_size=3))), st.integers(0, 3))
def test_headers_are_added_behind_those_of_each_row(rows, start):
    before = [[{"key": key, "value": value} for key, value in headers] for headers, _, _ in rows]
    column = pa.array(before, HEADERS_TYPE).slice(start)
    added = [("a", [a for _, a, _ in rows[start:]]), ("b", [b for _, _, b in rows[start:]])]
    found = with_headers(column, added)
    found.validate(full=True)
    assert found.type == HEADERS_TYPE
    assert found.to_pylist() == [
        [*headers, {"key": "a", "value": a.encode()}, {"key": "b", "value": b.encode()}]
        for headers, (_, a, b) in zip(before[start:], rows[start:], strict=True)
    ]


def test_a_read_of_files_alone_has_nowhere_to_write(spark, topics, malformed):
    reader = spark.read.format("sparklog").options(**JSON).option("mode", "PERMISSIVE").option("deadLetterTopic", "d")
    with pytest.raises(AnalysisException, match=r"deadLetterTopic needs kafka\.bootstrap\.servers"):
        reader.load(topics.folder(malformed)).collect()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "deadLetterTopic has a meaning only with valueFormat or keyFormat"),
        (JSON, "deadLetterTopic has a meaning only with mode = PERMISSIVE or DROPMALFORMED"),
        ({**JSON, "mode": "PERMISSIVE", "subscribe": "a,dead"}, "the read itself reads this topic"),
        ({**JSON, "mode": "PERMISSIVE", "subscribePattern": "d.*"}, "the read itself reads this topic"),
        ({**JSON, "mode": "PERMISSIVE", "assign": '{"dead": [1]}'}, "the read itself reads this topic"),
        ({**JSON, "mode": "PERMISSIVE", "subscribe": "a", "deadLetterTopic": "a b"}, "it must be a topic's name"),
    ],
)
def test_what_contradicts_is_refused(options, said):
    with pytest.raises(ConfigError) as refused:
        parse_typed_options({"deadLetterTopic": "dead", **options})
    assert said in str(refused.value)
