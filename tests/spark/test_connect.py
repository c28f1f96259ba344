"""Through Spark Connect: the same source, nothing registered, from a client that has no JVM of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support import GOLDEN
from support.patience import PATIENCE_S
from support.spark_topics import make_reader, rows_of

pytestmark = [pytest.mark.jvm, pytest.mark.slow]
SESSION = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[1]").config("spark.log.level", "ERROR").getOrCreate()
"""
READER = """
frame = spark.read.format("sparklog").load(sys.argv[1])
print("rows", frame.count(), frame.where("offset >= 100 and key is not null").count(), type(spark).__module__)
spark.stop()
"""
COPY = """
from pathlib import Path
bootstrap, source, target, also, folder = sys.argv[1:]

def write(frame, batch_id):
    options = {"kafka.bootstrap.servers": bootstrap, "topic": also, "txnAppId": "copy", "txnVersion": batch_id}
    frame.write.format("sparklog").options(**options).mode("append").save()

for place in (target, also, also):
    checkpoint = Path(folder) / place
    stream = spark.readStream.format("sparklog").option("kafka.bootstrap.servers", bootstrap)
    frame = stream.option("subscribe", source).option("startingOffsets", "earliest").load().select("value")
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    if place == also:
        query = writer.foreachBatch(write).start()
    else:
        query = writer.format("sparklog").option("kafka.bootstrap.servers", bootstrap).option("topic", target).start()
    query.awaitTermination()
    for file in (checkpoint / "commits").glob("*0*"):  # as if the driver had stopped right before it
        file.unlink()
spark.stop()
"""


def run(program: str, *arguments: str) -> list[str]:
    command = [sys.executable, "-c", SESSION + program, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=2 * PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_connect_session_reads_a_log_directory():
    assert "rows 200 86 pyspark.sql.connect.session" in run(READER, str(GOLDEN / "codec-zstd-0"))


def test_streams_of_a_connect_session_write_each_batch_once(topics, tmp_path: Path):
    """In `foreachBatch` as well, if it numbers its writes: there, Spark Connect does not tell tasks of their query."""
    source, *targets = (topics.create() for _ in range(3))
    topics.fill(source, 10)
    run(COPY, topics.bootstrap, source, *targets, str(tmp_path))
    for topic in targets:
        reader = make_reader({"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic})
        assert sorted(row["value"].decode() for row in rows_of(reader)) == sorted(f"v{number}" for number in range(10))
