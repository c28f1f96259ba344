"""The Spark part of the demo: batch queries, a time range that skips segments, a stream into a Delta table."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import GreaterThanOrEqual

from sparklog.spark.explain import Scan, explain


class Topic:
    """One topic of a broker, read in Spark."""

    def __init__(self, spark: SparkSession, bootstrap: str, name: str) -> None:
        self.spark = spark
        self.options = {"kafka.bootstrap.servers": bootstrap, "subscribe": name, "includeHeaders": "true"}

    def batch(self) -> DataFrame:
        """Return all present records of the topic."""
        return self.spark.read.format("sparklog").options(**self.options).load()

    def since(self, moment: datetime) -> DataFrame:
        """Return the records from `moment` on; older segments and batches are not read."""
        self.spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        pruned = self.spark.read.format("sparklog").options(**self.options).option("filterPushdown", "true").load()
        return pruned.where(f.col("timestamp") >= f.lit(moment))

    def opened_since(self, moment: datetime) -> Scan:
        """Return the scan that `since` makes of the topic."""
        return explain(self.options, [GreaterThanOrEqual(("timestamp",), moment)])

    def copy_to_delta(self, table: Path, checkpoint: Path) -> int:
        """Append the records since the last run to a Delta table, and return their number."""
        stream = self.spark.readStream.format("sparklog").options(**self.options).option("startingOffsets", "earliest")
        query = (
            stream.load()
            .writeStream.format("delta")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start(str(table))
        )
        query.awaitTermination()
        return sum(progress.numInputRows for progress in query.recentProgress)


def departures_by_carrier(records: DataFrame) -> dict[str, int]:
    """Count records by carrier, which is a header, because a cancelled flight has no value."""
    carrier = f.element_at(f.map_from_entries("headers"), "carrier").cast("string")
    return dict(records.groupBy(carrier.alias("carrier")).count().orderBy(f.desc("count")).collect())


def newest_values(records: DataFrame) -> dict[str, str | None]:
    """Return the last value of every plane, by offset: all records of a key are in one partition."""
    newest = records.where("key IS NOT NULL").groupBy("key").agg(f.max_by("value", "offset").alias("value"))
    return dict(newest.select(f.col("key").cast("string"), f.col("value").cast("string")).collect())
