"""Problems and findings from the tables of an audit (tables.py); each function is one transformation.

    lagging_in_isr         the ISR lists a replica that ends below the leader's high watermark
    hw_above_end           a replica's log ends below its own high watermark
    missing_replica        the store assigns a partition to a broker that has no log of it
    silent_broker          the store assigns a partition to a broker that is not in the cluster
    orphan_folder          a log that the store does not know, or does not assign to this broker; or one of another
                           topic that once had the name
    epoch_disagreement     broker and store differ about leader or leader epoch
    kinds from bytes       segment_scan.py
    kinds from replicas    differences.py

Numbers from two moments are compared in the order that makes growth harmless: an earlier high watermark with a later
log end.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sparklog.spark.audit.differences import DIVERGED
from sparklog.spark.audit.segment_scan import (
    CORRUPT_BATCH,
    EPOCH_DISAGREEMENT,
    MISSING_BATCH,
    OFFSET_DISORDER,
    TORN_TAIL,
    UNREADABLE_FILE,
    WRONG_INDEX_ENTRY,
    WRONG_TRANSACTION_INDEX,
)
from sparklog.spark.audit.tables import PARTITION, REPLICA, AuditTables

LAGGING_IN_ISR = "lagging_in_isr"
HW_ABOVE_END = "hw_above_end"
MISSING_REPLICA = "missing_replica"
SILENT_BROKER = "silent_broker"
ORPHAN_FOLDER = "orphan_folder"

CRITICAL, WARNING, INFO = "critical", "warning", "info"
SEVERITIES = (CRITICAL, WARNING, INFO)
KINDS = {
    CORRUPT_BATCH: CRITICAL,
    MISSING_BATCH: CRITICAL,
    DIVERGED: CRITICAL,
    OFFSET_DISORDER: CRITICAL,
    LAGGING_IN_ISR: CRITICAL,
    HW_ABOVE_END: CRITICAL,
    MISSING_REPLICA: CRITICAL,
    UNREADABLE_FILE: CRITICAL,
    WRONG_TRANSACTION_INDEX: CRITICAL,
    WRONG_INDEX_ENTRY: WARNING,
    EPOCH_DISAGREEMENT: WARNING,
    ORPHAN_FOLDER: WARNING,
    SILENT_BROKER: WARNING,
    TORN_TAIL: INFO,
}

_FETCH_AGAIN = (
    "stop broker {broker}, move the folder {topic}-{partition} away and start it again: it fetches the partition from "
    "the leader"
)
NEXT_STEPS = {
    CORRUPT_BATCH: _FETCH_AGAIN,
    MISSING_BATCH: _FETCH_AGAIN,
    DIVERGED: _FETCH_AGAIN,
    OFFSET_DISORDER: _FETCH_AGAIN,
    HW_ABOVE_END: _FETCH_AGAIN,
    LAGGING_IN_ISR: "see in the log of broker {broker} why it does not fetch; until it does, do not let it lead",
    MISSING_REPLICA: "look for a failed disk of broker {broker}; started anew, it fetches the partition again",
    UNREADABLE_FILE: "look at the disk of broker {broker}; then do as for a corrupt batch",
    WRONG_INDEX_ENTRY: "stop broker {broker}, delete .index and .timeindex of the segment and the file "
    ".kafka_cleanshutdown, start it: it builds them anew",
    WRONG_TRANSACTION_INDEX: "stop broker {broker}, overwrite the .txnindex of the segment with one byte (printf x), "
    "start it: it builds the index anew. Until then, its readers may be shown aborted records, or miss committed ones",
    EPOCH_DISAGREEMENT: "look for an election at this moment; if it stays, restart broker {broker}",
    ORPHAN_FOLDER: "if nobody needs its records, stop broker {broker} and move the folder {topic}-{partition} away; a "
    "sparklog broker makes a topic of a folder that nobody knows when it starts",
    SILENT_BROKER: "start broker {broker}, or move its replicas to other brokers",
    TORN_TAIL: "nothing: broker {broker} cuts it off when it starts",
}
ALONE = {
    kind: "there is no other replica to fetch from: read what is before and behind with a consumer, keep a copy of the "
    "folder, and restore the offsets from a backup or an archive"
    for kind, step in NEXT_STEPS.items()
    if step == _FETCH_AGAIN
}
ON_LEADER = {
    kind: "the leader differs from the others: keep a copy of its folder, let one of the others lead, then do as for a "
    "follower: stop broker {broker}, move {topic}-{partition} away and start it again"
    for kind, step in NEXT_STEPS.items()
    if step == _FETCH_AGAIN
}

MOVING = [LAGGING_IN_ISR, HW_ABOVE_END]
"""Kinds of problems whose offsets change all the time."""


# Problems of the store and the brokers


def problems_of_state(before: AuditTables, after: AuditTables) -> DataFrame:
    """Return PROBLEMS that need no bytes. before, after: the cluster at two moments; a problem must exist at both."""
    return _union(
        before.problems.join(after.problems, ["broker", *PARTITION, "kind"], "left_semi"),
        lagging_in_isr(before, after),
        hw_above_end(before.replicas, after.replicas),
        _in_both(missing_replicas(before), missing_replicas(after)),
        _in_both(orphan_folders(before), orphan_folders(after)),
        _in_both(epoch_disagreements(before), epoch_disagreements(after)),
    )


def lagging_in_isr(before: AuditTables, after: AuditTables) -> DataFrame:
    """Return members of the ISR whose logs end below the leader's high watermark."""
    leaders = before.replicas.where("is_leader").select(
        *PARTITION, F.col("broker").alias("leader"), F.col("high_watermark").alias("committed")
    )
    members = _in_both(
        *(
            tables.store.select(*PARTITION, F.explode("isr").alias("broker")).select(*REPLICA)
            for tables in (before, after)
        )
    )
    ends = after.replicas.select(*REPLICA, "log_end_offset")
    found = F.format_string(
        "the ISR lists broker %d, whose log ends at %d; the leader, broker %d, has committed up to %d",
        "broker", "log_end_offset", "leader", "committed",
    )  # fmt: skip
    behind = members.join(leaders, PARTITION).join(ends, REPLICA).where("log_end_offset < committed")
    return _problems(behind, LAGGING_IN_ISR, "log_end_offset", found)


def hw_above_end(before: DataFrame, after: DataFrame) -> DataFrame:
    """Return replicas whose logs end below the high watermark that they had before. before, after: REPLICAS."""
    ends = after.where("log_end_offset >= 0").select(*REPLICA, "log_end_offset")
    return _above_end(before.select(*REPLICA, "high_watermark").join(ends, REPLICA))


def hw_above_bytes(replicas: DataFrame, facts: DataFrame) -> DataFrame:
    """Return replicas whose last segment, if undamaged, ends below their high watermark; damage has its own problem."""
    damage = [CORRUPT_BATCH, UNREADABLE_FILE, OFFSET_DISORDER]
    is_damaged = F.exists("problems", lambda problem: problem["kind"].isin(damage))
    ends = facts.where((F.col("next_offset") < 0) & ~F.col("is_gone") & ~is_damaged).select(
        *REPLICA, F.col("end_offset").alias("log_end_offset")
    )
    return _above_end(replicas.select(*REPLICA, "high_watermark").join(ends, REPLICA))


def _above_end(rows: DataFrame) -> DataFrame:
    found = F.format_string("the high watermark is %d, the log ends at %d", "high_watermark", "log_end_offset")
    return _problems(rows.where("high_watermark > log_end_offset"), HW_ABOVE_END, "log_end_offset", found)


def missing_replicas(tables: AuditTables) -> DataFrame:
    """Return assigned partitions of which the broker has no log, and those whose broker is not in the cluster."""
    assigned = tables.store.select(*PARTITION, "isr", F.explode("replicas").alias("broker"))
    absent = assigned.join(tables.replicas, REPLICA, "left_anti")
    in_isr = F.when(F.array_contains("isr", F.col("broker")), "; it is in the ISR").otherwise("")
    is_there = tables.brokers.withColumn("is_there", F.lit(True))
    absent = absent.join(is_there, "broker", "left")
    return _union(
        _problems(
            absent.where("is_there"), MISSING_REPLICA, None,
            F.concat(F.format_string("broker %d should have the partition, and has not", "broker"), in_isr),
        ),
        _problems(
            absent.where("is_there is null"), SILENT_BROKER, None,
            F.concat(F.format_string("broker %d should have the partition, and is not there", "broker"), in_isr),
        ),
    )  # fmt: skip


def orphan_folders(tables: AuditTables) -> DataFrame:
    """Return folders that the store, if there is one, does not assign to their broker, and logs of `other_topics`."""
    assigned = tables.store.select(*PARTITION, F.explode("replicas").alias("broker"))
    known = tables.store.select(*PARTITION).withColumn("is_known", F.lit(True))
    stray = tables.folders.join(assigned, REPLICA, "left_anti").join(known, PARTITION, "left")
    stray = stray.crossJoin(F.broadcast(tables.store.agg((F.count("*") > 0).alias("has_store")))).where("has_store")
    reason = F.when(
        F.col("is_known"), F.format_string("%s: the store has assigned the partition to other brokers", "folder")
    ).otherwise(F.format_string("%s: the store knows no such partition", "folder"))
    return _union(_problems(stray, ORPHAN_FOLDER, None, reason), other_topics(tables.replicas))


def other_topics(replicas: DataFrame) -> DataFrame:
    """Return logs whose topic id is not that of most replicas; in a tie, not the leader's, else the lowest broker's."""
    named = replicas.where("topic_id != ''")
    ids = named.groupBy(*PARTITION, "topic_id").agg(
        F.count("*").alias("replicas"), F.max("is_leader").alias("leads"), F.min("broker").alias("lowest")
    )
    order = Window.partitionBy(*PARTITION).orderBy(F.desc("replicas"), F.desc("leads"), "lowest")
    usual = ids.withColumn("rank", F.row_number().over(order)).where("rank = 1")
    others = named.join(usual.select(*PARTITION, F.col("topic_id").alias("usual")), PARTITION)
    found = F.format_string("the folder is of topic id %s, that of the others is %s", "topic_id", "usual")
    return _problems(others.where("topic_id != usual"), ORPHAN_FOLDER, None, found)


def epoch_disagreements(tables: AuditTables) -> DataFrame:
    """Return brokers that differ from the store about the leader, or the leader epoch."""
    told = tables.replicas.select(
        *REPLICA, "is_leader", F.col("leader_epoch").alias("told_epoch"), F.col("broker").alias("teller")
    )
    both = told.join(tables.store.select(*PARTITION, "leader", "leader_epoch", "replicas"), PARTITION)
    both = both.where(F.array_contains("replicas", F.col("broker")))
    found = F.format_string(
        "broker %d says: leader %s, epoch %d; the store says: leader is broker %d, epoch %d",
        "broker", F.col("is_leader").cast("string"), "told_epoch", "leader", "leader_epoch",
    )  # fmt: skip
    differs = (F.col("is_leader") != (F.col("leader") == F.col("broker"))) | (
        (F.col("told_epoch") >= 0) & (F.col("told_epoch") != F.col("leader_epoch"))
    )
    return _problems(both.where(differs), EPOCH_DISAGREEMENT, None, found)


# Problems of the bytes


def problems_of_bytes(facts: DataFrame) -> DataFrame:
    """Return the PROBLEMS of FACTS."""
    each = facts.select(*REPLICA, F.explode("problems").alias("problem"))
    gone = facts.where("is_gone")
    return _union(
        each.select(*REPLICA, "problem.kind", "problem.offset", "problem.found"),
        _problems(gone, UNREADABLE_FILE, "base_offset", F.lit("the segment's log is not there")),
    )


# From problems to findings


def confirmed(first: DataFrame, again: DataFrame) -> DataFrame:
    """Return the problems of a second look that the first look had too."""
    seen = first.select(*REPLICA, "kind", "offset").distinct().alias("seen")
    again = again.alias("again")
    same = [F.col(f"seen.{name}").eqNullSafe(F.col(f"again.{name}")) for name in (*REPLICA, "kind")]
    same_offset = F.col("seen.offset").eqNullSafe(F.col("again.offset")) | F.col("again.kind").isin(MOVING)
    condition = same_offset
    for each in same:
        condition = condition & each
    return again.join(seen, condition, "left_semi")


def findings(problems: DataFrame, replicas: DataFrame) -> DataFrame:
    """Return FINDINGS: one row for each problem, in no order."""
    known = replicas.groupBy(*PARTITION).agg(F.count("*").alias("copies"))
    leads = replicas.where("is_leader").select(*REPLICA).distinct().withColumn("leads", F.lit(True))
    unique = problems.groupBy("kind", *REPLICA, "offset").agg(F.min("found").alias("found"))
    rows = unique.join(known, PARTITION, "left").join(leads, REPLICA, "left")
    step = F.coalesce(
        F.when(F.col("copies") <= 1, _text_by_kind(ALONE)),
        F.when(F.col("leads"), _text_by_kind(ON_LEADER)),
        _text_by_kind(NEXT_STEPS),
    )
    for name in REPLICA:
        step = F.replace(step, F.lit("{" + name + "}"), F.coalesce(F.col(name).cast("string"), F.lit("?")))
    return rows.select(
        _text_by_kind(KINDS).alias("severity"), "kind", *REPLICA, "offset", "found", step.alias("next_step")
    )  # fmt: skip


def _text_by_kind(texts: dict[str, str]) -> Column:
    pairs = [F.lit(item) for pair in texts.items() for item in pair]
    return F.try_element_at(F.create_map(*pairs), F.col("kind"))


def _problems(rows: DataFrame, kind: str, offset: str | None, found: Column) -> DataFrame:
    at = F.col(offset) if offset else F.lit(None)
    return rows.select(*REPLICA, F.lit(kind).alias("kind"), at.cast("bigint").alias("offset"), found.alias("found"))


def _in_both(first: DataFrame, second: DataFrame) -> DataFrame:
    """Return the rows of `second` that are in `first`, apart from `offset` and `found`."""
    keys = [name for name in second.columns if name not in ("offset", "found")]
    return second.join(first, keys, "left_semi")


def _union(first: DataFrame, *more: DataFrame) -> DataFrame:
    for each in more:
        first = first.unionByName(each)
    return first
