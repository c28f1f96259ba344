"""The tables of the offsets topic in Spark. Only one run at a time can write them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from sparklog.spark.offsets.tables import ConcurrentRun, PartitionProgress, ReplayTable
from sparklog.spark.offsets.topic import NEWEST, newest

AT = datetime(2026, 1, 2)
SCHEMA = from_arrow_schema(NEWEST)


def test_the_newest_record_of_each_key_counts_and_a_tombstone_ends_it(spark: SparkSession) -> None:
    before = [(0, b"a", 1, AT, b"old", False), (0, b"b", 2, AT, b"stays", False), (0, b"c", 3, AT, b"goes", False),
              (1, b"a", 9, AT, b"of another partition", False), (2, b"a", 5, AT, b"rebuilt", True)]  # fmt: skip
    changed = [(0, b"a", 11, AT, b"new", True), (0, b"c", 12, AT, None, False), (0, b"a", 10, AT, b"older", False),
               (2, b"b", 4, AT, b"all there is", False)]  # fmt: skip

    found = newest(spark.createDataFrame(before, SCHEMA), spark.createDataFrame(changed, SCHEMA), rebuilt=[2])

    wanted = [(0, b"a", 11, AT, b"new", True), (0, b"b", 2, AT, b"stays", False),
              (1, b"a", 9, AT, b"of another partition", False), (2, b"b", 4, AT, b"all there is", False)]  # fmt: skip
    assert_df_equality(found, spark.createDataFrame(wanted, SCHEMA), ignore_row_order=True, ignore_nullable=True)


def test_of_two_runs_at_once_one_writes_and_a_table_that_others_wrote_to_still_says_how_far_it_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "table")
    rows = spark.createDataFrame([(0, b"a", 1, AT, b"v", False)], SCHEMA)
    one, other = ReplayTable.open(spark, path), ReplayTable.open(spark, path)
    one.write(rows, "append", {0: PartitionProgress("id", 2, 7)}, "one")

    with pytest.raises(ConcurrentRun):
        other.write(rows, "append", {0: PartitionProgress("id", 3)}, "other")
    rows.limit(0).write.format("delta").mode("append").save(path)
    after = ReplayTable.open(spark, path)

    assert after.reached(0, "id") == PartitionProgress("id", 2, 7)
    assert after.reached(0, "another topic") is after.reached(1, "id") is None
    assert after.read().count() == 1
