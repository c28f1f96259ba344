"""spark-submit … cluster_count.py BOOTSTRAP TOPIC: print how many records a read has, or its error."""

from __future__ import annotations

import sys

from pyspark.errors import PythonException
from pyspark.sql import SparkSession

if __name__ == "__main__":
    spark = SparkSession.builder.appName("count").getOrCreate()
    topic = spark.read.format("sparklog").options(**{"kafka.bootstrap.servers": sys.argv[1], "subscribe": sys.argv[2]})
    try:
        print(topic.load().count(), "records")
    except PythonException as failed:
        print(failed)
    spark.stop()
