"""The cluster's decisions about partitions with audit findings, read from `__cluster_history`.

Reads the topic through the public Spark source, and only if there are findings: a healthy cluster costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparklog.client import Admin
from sparklog.cluster.history import HISTORY_TOPIC
from sparklog.spark.audit.tables import PARTITION
from sparklog.spark.source.option_parsing import SECURITY_KEYS

CONNECTION = ("bootstrap_servers", *(key.replace(".", "_") for key in SECURITY_KEYS))
"""Client options that the Spark source has, too."""
NOTED = "topic string, partition int, time_ms bigint, kind string"


def with_decisions(findings: DataFrame, spark: SparkSession, client: Mapping[str, Any]) -> DataFrame:
    """Return `findings` with the columns `decided_at` and `decided`: the newest record about the partition, or null.

    If there is no history topic, `findings` is returned without these columns.
    """
    with Admin(**client) as admin:
        topics = {topic.name for topic in admin.list_topics(include_internal=True)}
    if HISTORY_TOPIC not in topics:
        return findings
    options = {"kafka." + name.replace("_", "."): _text(client[name]) for name in CONNECTION if name in client}
    history = spark.read.format("sparklog").option("subscribe", HISTORY_TOPIC).options(**options).load()
    return findings.join(newest_decisions(history), PARTITION, "left")


def newest_decisions(history: DataFrame) -> DataFrame:
    """Return topic, partition, decided_at and decided of the newest decisions, from records read by the source."""
    noted = history.select(
        "offset",
        F.col("value").cast("string").alias("decided"),
        F.from_json(F.col("value").cast("string"), NOTED).alias("noted"),
    )
    about = noted.where("noted.topic is not null and noted.partition is not null")
    newest = about.groupBy("noted.topic", "noted.partition").agg(
        F.max_by(F.struct(F.timestamp_millis("noted.time_ms").alias("decided_at"), "decided"), "offset").alias("last")
    )
    return newest.select(*PARTITION, "last.decided_at", "last.decided")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ",".join(map(str, value))
