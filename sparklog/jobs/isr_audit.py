"""The audit of replicas: compares what the store and the brokers report with the bytes of every replica.

    plan     lists the logs to read: every log of every broker, or of every directory given by --path
    apply    reads all of them (spark/audit/audit.py) and changes nothing
    report   has one row for each finding, and one for each partition without findings. If the cluster keeps a history,
             a finding has the cluster's last decision about the partition (`decided`, `decided_at`)

The job reads the decisions from `__cluster_history` through the public Spark source, and only if there are findings.

Outcomes: ok, or the severity of a finding: critical (records are lost, damaged or differ between replicas), warning
(needs repair, but nothing is lost), info. With critical findings or warnings the exit status is 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparklog.client import Admin
from sparklog.cluster.history import HISTORY_TOPIC
from sparklog.jobs.job import Job, JobContext, Options
from sparklog.jobs.options import topic_filter
from sparklog.spark.audit.audit import Auditor, AuditSource
from sparklog.spark.audit.broker import BrokerSource
from sparklog.spark.audit.findings import CRITICAL, WARNING
from sparklog.spark.audit.folders import FolderSource
from sparklog.spark.audit.tables import PARTITION
from sparklog.spark.source.option_table import SECURITY_KEYS

PLAN_SCHEMA = (
    "topic string, partition int, reason string, broker int, segments int, size_bytes bigint, "
    "log_start_offset bigint, high_watermark bigint, folder string"
)
OK = "ok"
CONNECTION = ("bootstrap_servers", *(key.replace(".", "_") for key in SECURITY_KEYS))
"""Client options that the Spark source has too."""
NOTED = "topic string, partition int, time_ms bigint, kind string"


def plan(context: JobContext, options: Options) -> DataFrame:
    """Return one row for each log to read."""
    rows = [
        (
            *replica.partition, "leader" if replica.is_leader else "replica", replica.broker, len(replica.segments),
            sum(max(0, segment.size_bytes) for segment in replica.segments), replica.log_start_offset,
            replica.high_watermark, replica.folder or "through its broker",
        )
        for replica in _audit_source(context, options).view().replicas
    ]  # fmt: skip
    return context.spark.createDataFrame(sorted(rows), PLAN_SCHEMA)


def apply(context: JobContext, options: Options, plan: DataFrame) -> DataFrame:
    """Read all logs, and return the findings and the partitions without findings."""
    source, client = _audit_source(context, options), {} if options["path"] else context.client
    audited = Auditor(spark=context.spark, source=source, client=client, say=context.say).run()
    partitions = audited.partitions
    found = audited.findings.withColumnsRenamed({"severity": "outcome", "found": "reason"}).cache()
    if not options["path"] and not found.isEmpty():
        found = with_decisions(found, context.spark, context.client)
    figures = ["replicas", "segments", "batches", "size_bytes"]
    fine = partitions.join(found, ["topic", "partition"], "left_anti").select(
        "topic", "partition", F.lit(OK).alias("outcome"), F.lit("nothing found").alias("reason"), *figures
    )
    reported = found.join(partitions, ["topic", "partition"], "left").select(
        "topic",
        "partition",
        "outcome",
        "reason",
        "kind",
        "broker",
        "offset",
        "next_step",
        *figures,
        *_decision_columns(found),
    )
    rank = F.array_position(F.array(*map(F.lit, (CRITICAL, WARNING, "info", OK))), F.col("outcome"))
    return reported.unionByName(fine, allowMissingColumns=True).orderBy(rank, "topic", "partition", "offset", "broker")


def _decision_columns(found: DataFrame) -> list[str]:
    """Return the names of the history's columns; none if the cluster keeps no history."""
    return [name for name in ("decided_at", "decided") if name in found.columns]


def _audit_source(context: JobContext, options: Options) -> AuditSource:
    wanted = topic_filter(options["topics"])
    return FolderSource(options["path"], wanted) if options["path"] else BrokerSource(context.client, wanted)


def with_decisions(findings: DataFrame, spark: SparkSession, client: Mapping[str, Any]) -> DataFrame:
    """Return `findings` with the columns `decided_at` and `decided`: the newest record about the partition, or null.

    If there is no history topic, `findings` is returned without these columns.
    """
    with Admin(**client) as admin:
        topics = {topic.name for topic in admin.list_topics(include_internal=True)}
    if HISTORY_TOPIC not in topics:
        return findings
    options = {"kafka." + name.replace("_", "."): _option_text(client[name]) for name in CONNECTION if name in client}
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


def _option_text(value: Any) -> str:
    return value if isinstance(value, str) else ",".join(map(str, value))


JOB = Job(
    name="isr_audit",
    help="Compare what brokers and the store say with the bytes of every replica; changes nothing.",
    plan=plan,
    apply=apply,
    parameters=(
        click.Option(
            ["--path"],
            multiple=True,
            metavar="DIR",
            help="Read this log directory, sparklog's or Apache Kafka's, instead of asking brokers; may be repeated "
            "for the brokers of one cluster.",
        ),
        click.Option(
            ["--topics"],
            multiple=True,
            metavar="NAME",
            help="Only topics that match this regular expression; may be repeated.  [default: all, internal ones too]",
        ),
    ),
    findings=frozenset({CRITICAL, WARNING}),
)
