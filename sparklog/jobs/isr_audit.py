"""The audit of replicas: what the store and brokers say, held against the bytes of every replica.

    plan     every log of every broker, or of every directory that --path names: what would be read
    apply    reads all of it (spark/audit/audit.py) and changes nothing
    report   one row for each finding, with what the cluster has decided last about the partition if it keeps a history
             (`decided`, `decided_at`), and one for each partition that has none

Outcomes: ok, and the severity of a finding: critical (records are lost, damaged or not the same everywhere), warning
(to be mended, and nothing is lost), info. Critical ones and warnings make the exit status 1.
"""

from __future__ import annotations

import click
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparklog.jobs.audit_history import with_decisions
from sparklog.jobs.job import Job, JobContext, Options
from sparklog.jobs.options import topic_chooser
from sparklog.spark.audit.audit import Auditor, Source
from sparklog.spark.audit.broker import BrokerSource
from sparklog.spark.audit.findings import CRITICAL, WARNING
from sparklog.spark.audit.folders import FolderSource

PLAN_SCHEMA = (
    "topic string, partition int, reason string, broker int, segments int, size_bytes bigint, "
    "log_start_offset bigint, high_watermark bigint, folder string"
)
OK = "ok"


def plan(context: JobContext, options: Options) -> DataFrame:
    """What there is to read."""
    rows = [
        (
            *replica.partition, "leader" if replica.is_leader else "replica", replica.broker, len(replica.segments),
            sum(max(0, segment.size_bytes) for segment in replica.segments), replica.log_start_offset,
            replica.high_watermark, replica.folder or "through its broker",
        )
        for replica in _source(context, options).view().replicas
    ]  # fmt: skip
    return context.spark.createDataFrame(sorted(rows), PLAN_SCHEMA)


def apply(context: JobContext, options: Options, plan: DataFrame) -> DataFrame:
    """Read it, and say what was found."""
    source = _source(context, options)
    audited = Auditor(spark=context.spark, source=source, client=context.client, say=context.say).run()
    partitions = audited.partitions
    found = audited.findings.withColumnsRenamed({"severity": "outcome", "found": "reason"}).cache()
    if not options["path"] and not found.isEmpty():
        found = with_decisions(found, context.spark, context.client)
    figures = ["replicas", "segments", "batches", "size_bytes"]
    fine = partitions.join(found, ["topic", "partition"], "left_anti").select(
        "topic", "partition", F.lit(OK).alias("outcome"), F.lit("nothing found").alias("reason"), *figures
    )
    reported = found.join(partitions, ["topic", "partition"], "left").select(
        "topic", "partition", "outcome", "reason", "kind", "broker", "offset", "next_step", *figures, *_decided(found)
    )
    rank = F.array_position(F.array(*map(F.lit, (CRITICAL, WARNING, "info", OK))), F.col("outcome"))
    return reported.unionByName(fine, allowMissingColumns=True).orderBy(rank, "topic", "partition", "offset", "broker")


def _decided(found: DataFrame) -> list[str]:
    """The columns of the cluster's history, where it has one."""
    return [name for name in ("decided_at", "decided") if name in found.columns]


def _source(context: JobContext, options: Options) -> Source:
    wanted = topic_chooser(options["topics"])
    return FolderSource(options["path"], wanted) if options["path"] else BrokerSource(context.client, wanted)


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
            help="No broker: a log directory, sparklog's or Apache Kafka's; several are one cluster's.",
        ),
        click.Option(
            ["--topics"],
            multiple=True,
            metavar="NAME",
            help="Only these, as regular expressions; may be repeated.  [default: all, internal ones too]",
        ),
    ),
    findings=frozenset({CRITICAL, WARNING}),
)
