"""What the demo does in Spark: batch queries, a time range that skips segments, a stream into a Delta table."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import GreaterThanOrEqual

from sparklog.spark.explain import Scan, explain


class Topic:
    """One topic of a broker, as Spark reads it."""

    def __init__(self, spark: SparkSession, bootstrap: str, name: str) -> None:
        self.spark = spark
        self.options = {"kafka.bootstrap.servers": bootstrap, "subscribe": name, "includeHeaders": "true"}

    def batch(self) -> DataFrame:
        """All records that are there now."""
        return self.spark.read.format("sparklog").options(**self.options).load()

    def since(self, moment: datetime) -> DataFrame:
        """The records from `moment` on; segments and batches that are older are not read."""
        self.spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        pruned = self.spark.read.format("sparklog").options(**self.options).option("filterPushdown", "true").load()
        return pruned.where(f.col("timestamp") >= f.lit(moment))

    def opened_since(self, moment: datetime) -> Scan:
        """How much of the topic `since` opens."""
        return explain(self.options, [GreaterThanOrEqual(("timestamp",), moment)])

    def copy_to_delta(self, table: Path, checkpoint: Path) -> int:
        """Append what has come since the last run to a Delta table; -> how many records that were."""
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
    """How many records each carrier has, by a header: a cancelled flight has no value to look into."""
    carrier = f.element_at(f.map_from_entries("headers"), "carrier").cast("string")
    return dict(records.groupBy(carrier.alias("carrier")).count().orderBy(f.desc("count")).collect())


def newest_values(records: DataFrame) -> dict[str, str | None]:
    """The last value of every plane. All records of a key are in one partition, where offsets say which came last."""
    newest = records.where("key IS NOT NULL").groupBy("key").agg(f.max_by("value", "offset").alias("value"))
    return dict(newest.select(f.col("key").cast("string"), f.col("value").cast("string")).collect())
