"""The source through Spark Connect, without registration, from a client without a JVM."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support import GOLDEN
from support.patience import PATIENCE_S
from support.spark_topics import Topics, make_reader, rows_of

pytestmark = pytest.mark.jvm
SESSION = """
import os, sys
from pathlib import Path
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[1]").config("spark.log.level", "ERROR").getOrCreate()
"""
READ = """
frame = spark.read.format("sparklog").load(sys.argv[1])
print("rows", frame.count(), frame.where("offset >= 100 and key is not null").count(), type(spark).__module__)
spark.stop()
"""
COPY = """
bootstrap, source, target, checkpoint = sys.argv[1:]

def write(frame, batch_id):
    options = {"kafka.bootstrap.servers": bootstrap, "topic": target, "txnAppId": "copy", "txnVersion": batch_id}
    frame.write.format("sparklog").options(**options).mode("append").save()

for _ in range(2):
    stream = spark.readStream.format("sparklog").option("kafka.bootstrap.servers", bootstrap)
    frame = stream.option("subscribe", source).option("startingOffsets", "earliest").load().select("value")
    writer = frame.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.foreachBatch(write).start().awaitTermination()
    for file in Path(checkpoint, "commits").glob("*0*"):  # as if the driver had stopped right before it
        file.unlink()
spark.stop()
"""


def run(program: str, *arguments: str) -> list[str]:
    """Return the output of the program."""
    command = [sys.executable, "-c", SESSION + program, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=2 * PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_a_connect_session_reads_a_log_directory() -> None:
    assert "rows 200 86 pyspark.sql.connect.session" in run(READ, str(GOLDEN / "codec-zstd-0"))


@pytest.mark.soak
@pytest.mark.soak_only
def test_a_stream_writes_each_batch_once_in_foreach_batch(topics: Topics, tmp_path: Path) -> None:
    """The writes number themselves, because tasks under Spark Connect do not know their query."""
    source, target = topics.create(), topics.create()
    topics.fill(source, 10)
    run(COPY, topics.broker.bootstrap, source, target, str(tmp_path / "checkpoint"))
    reader = make_reader({"kafka.bootstrap.servers": topics.broker.bootstrap, "subscribe": target})
    assert sorted(row["value"].decode() for row in rows_of(reader)) == sorted(f"v{number}" for number in range(10))
