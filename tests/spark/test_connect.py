"""Through Spark Connect: the same source, nothing registered, from a client that has no JVM of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support import GOLDEN
from support.patience import PATIENCE_S

CLIENT = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[1]").config("spark.log.level", "ERROR").getOrCreate()
frame = spark.read.format("sparklog").load(sys.argv[1])
print("rows", frame.count(), frame.where("offset >= 100 and key is not null").count(), type(spark).__module__)
spark.stop()
"""


@pytest.mark.jvm
@pytest.mark.slow
def test_a_connect_session_reads_a_log_directory():
    command = [sys.executable, "-c", CLIENT, str(GOLDEN / "codec-zstd-0")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=2 * PATIENCE_S)
    assert "rows 200 86 pyspark.sql.connect.session" in done.stdout.splitlines()
