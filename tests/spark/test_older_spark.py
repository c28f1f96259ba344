"""The source with an earlier PySpark, as managed platforms ship it. The tests hide what that version lacks."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from support.patience import PATIENCE_S
from support.spark_topics import Topics

pytestmark = pytest.mark.slow

OF_4_1 = (
    "EqualNullSafe", "EqualTo", "Filter", "GreaterThan", "GreaterThanOrEqual", "In", "IsNotNull", "LessThan",
    "LessThanOrEqual", "StringStartsWith", "DataSourceStreamArrowWriter",
)  # fmt: skip
PROGRAM = """
import json, sys
from pyspark.sql import datasource, streaming

for name in json.loads(sys.argv[1]):
    delattr(datasource, name)
sys.modules["pyspark.sql.streaming.datasource"] = None
if hasattr(streaming, "datasource"):
    del streaming.datasource

from sparklog.base.errors import ConfigError
from sparklog.spark import SparklogDataSource

options = {"kafka.bootstrap.servers": sys.argv[2], "subscribe": sys.argv[3]}


def count(reader, tasks):
    return sum(batch.num_rows for task in tasks for batch in reader.read(task))


def refused(make):
    try:
        make()
    except ConfigError as error:
        return str(error)
    return ""


source = SparklogDataSource(options)
schema = source.schema()
batch = source.reader(schema)
stream = SparklogDataSource({**options, "startingOffsets": "earliest"}).streamReader(schema)
first = stream.latestOffset()
start = stream.initialOffset()
limited = SparklogDataSource({**options, "maxOffsetsPerTrigger": "1"})
writer = SparklogDataSource({"kafka.bootstrap.servers": sys.argv[2], "topic": sys.argv[3]})
print(json.dumps({
    "batch": count(batch, batch.partitions()),
    "stream": count(stream, stream.partitions(start, first)),
    "start": start,
    "end": first,
    "again": stream.latestOffset(),
    "limit": refused(lambda: limited.streamReader(schema)),
    "write": refused(lambda: writer.streamWriter(schema, False)),
}))
"""


@pytest.mark.parametrize(("lacks", "may_write"), [((), True), (OF_4_1, False)], ids=["4.1", "4.0"])
def test_reads_work_and_what_does_not_says_which_version_it_needs(
    topics: Topics, lacks: tuple[str, ...], may_write: bool
) -> None:
    topic = topics.create()
    topics.fill(topic, 50)
    command = [sys.executable, "-c", PROGRAM, json.dumps(lacks), topics.bootstrap, topic]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["batch"], found["stream"]) == (50, 50)
    assert (found["start"], found["end"], found["again"]) == ({topic: {"0": 0}}, {topic: {"0": 50}}, {topic: {"0": 50}})
    assert "maxOffsetsPerTrigger and others) needs Spark 4.2; this is Spark" in found["limit"]
    assert ("writeStream" in found["write"] and "needs Spark 4.1; this is" in found["write"]) is not may_write
    assert may_write is (found["write"] == "")
