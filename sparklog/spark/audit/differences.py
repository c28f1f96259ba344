"""Differences of replicas below their high watermarks, from the tables of an audit (tables.py).

    diverged         a replica's batch differs from that of the reference, or the reference has no batch there
    missing_batch    a replica has no batch where the reference has one

Digests are compared slice by slice. The reference is the content that most replicas have; in a tie the leader's
content, else that of the lowest broker. In the first slice in which a replica differs, batches are compared one by one.

A batch that only one replica has, or that differs, counts as a difference if all this holds for both replicas:

    the replica existed before the batches were read, and afterwards
    its high watermark was above the batch before they were read: a replica never gives up committed records, except in
    unclean elections, which lose records
    afterwards no log begins above the batch, and no cleaner has passed it
    the segment to which the batch belongs, and those above, are the same files before and afterwards

So a replica that is moved away while it is read, or moved back and fetched anew, gives no findings.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sparklog.base.config_keys import MAX_LONG
from sparklog.records.batch import DELETE_HORIZON_BIT
from sparklog.spark.audit.segment_scan import MISSING_BATCH
from sparklog.spark.audit.tables import PARTITION, REPLICA

DIVERGED = "diverged"


def differing_slices(facts: DataFrame, replicas: DataFrame) -> DataFrame:
    """Return DIFFERENCES: for each replica the first slice that differs from the reference, and how many differ."""
    keys = [*PARTITION, "number", "cut"]
    parts = facts.select(*REPLICA, F.explode("slices").alias("slice")).select(*REPLICA, "slice.*")
    whole = parts.groupBy(*REPLICA, "number", "cut").agg(
        F.sum("batches").alias("batches"),
        F.bit_xor("digest").alias("digest"),
        F.min("first_offset").alias("first_offset"),
        F.max("last_offset").alias("last_offset"),
    )
    bounds = whole.groupBy(*keys).agg(F.min("first_offset").alias("first"), F.max("last_offset").alias("last"))
    gone = _ends_of_gone_segments(facts.where("is_gone"))
    able = replicas.select(*REPLICA, "is_leader", "compare_from", "high_watermark").join(gone, REPLICA, "left")
    covered = bounds.join(able, PARTITION).where(
        "first >= greatest(compare_from, coalesce(gone_to, 0)) and last < high_watermark"
    )
    digests = whole.select(*REPLICA, "number", "cut", "batches", "digest")
    each = covered.join(digests, [*REPLICA, "number", "cut"], "left")
    each = each.fillna(0, ["batches", "digest"])
    return _first_of(_against_reference(each, keys))


def _ends_of_gone_segments(gone: DataFrame) -> DataFrame:
    """Return, for each replica with missing segments, the end of the last one; offsets below it are unknown.

    If the log's last segment is missing, all offsets are unknown: the replica was being deleted, or created again.
    """
    end = F.when(F.col("next_offset") < 0, F.lit(MAX_LONG)).otherwise(F.col("next_offset"))
    return gone.groupBy(*REPLICA).agg(F.max(end).alias("gone_to"))


def _against_reference(each: DataFrame, keys: list[str]) -> DataFrame:
    """Return each replica's slice, whether it differs from the reference, and a broker that has the reference."""
    groups = each.groupBy(*keys, "batches", "digest").agg(
        F.count("*").alias("having"),
        F.max("is_leader").alias("leads"),
        F.min("broker").alias("lowest"),
        F.min(F.when(F.col("is_leader"), F.col("broker"))).alias("leading"),
    )
    order = Window.partitionBy(*keys).orderBy(F.desc("having"), F.desc("leads"), "lowest")
    reference = groups.withColumn("rank", F.row_number().over(order)).where("rank = 1").select(
        *keys,
        F.coalesce("leading", "lowest").alias("reference"),
        F.col("batches").alias("usual_batches"),
        F.col("digest").alias("usual_digest"),
    )  # fmt: skip
    differs = (F.col("batches") != F.col("usual_batches")) | (F.col("digest") != F.col("usual_digest"))
    return each.join(reference, keys).withColumn("differs", differs)


def _first_of(each: DataFrame) -> DataFrame:
    order = F.struct("number", "cut")
    first = F.min_by(
        F.struct("reference", "first", "last"), F.when(F.col("differs"), order)
    )  # rows that do not differ have a null order, which min_by ignores
    found = each.groupBy(*REPLICA).agg(
        first.alias("at"), F.count_if("differs").alias("differing"), F.count("*").alias("compared")
    )
    return found.where("differing > 0").select(
        *PARTITION, "at.reference", "broker", F.col("at.first").alias("first_offset"),
        F.col("at.last").alias("last_offset"), "differing", "compared",
    )  # fmt: skip


def comparable(before: DataFrame, after: DataFrame, changed: DataFrame) -> DataFrame:
    """Return, for each replica that exists before and after a reading, the offsets that can be compared with others.

    before, after: REPLICAS. changed: the segments of `before` that are replaced or gone afterwards, with replica and
    `next_offset`. `gaps_to` in the result: batches below may be missing.
    """
    starts = after.groupBy(*PARTITION).agg(F.max("compare_from").alias("start"), F.max("gaps_to").alias("gaps_to"))
    there = before.select(*REPLICA, "high_watermark").join(after.select(*REPLICA), REPLICA).join(starts, PARTITION)
    return there.join(_ends_of_gone_segments(changed), REPLICA, "left").select(
        *REPLICA,
        F.greatest("start", "gone_to").alias("begin"),  # which ignores a null
        F.col("high_watermark").alias("end"),
        "gaps_to",
    )


def first_differences(batches: DataFrame, differences: DataFrame, able: DataFrame) -> DataFrame:
    """Return PROBLEMS: for each replica of DIFFERENCES, the first batch that differs from its reference.

    able: the result of `comparable`. Below `gaps_to`, a cleaner may have removed batches or records; but if both
    replicas have the same batch with the same records, its bytes must agree. Nothing is reported after damage, because
    the batches there are not known.
    """
    theirs = able.select(*PARTITION, "broker", "begin", "end").toDF(*PARTITION, "reference", "their_begin", "their_end")
    pairs = differences.join(able, REPLICA).join(theirs, [*PARTITION, "reference"])
    both = _side(batches, pairs, "broker", "mine").join(
        _side(batches, pairs, "reference", "theirs"), [*PARTITION, "reference", "broker", "base_offset"], "full"
    )
    both = both.join(pairs, [*PARTITION, "reference", "broker"])
    pair = Window.partitionBy(*PARTITION, "reference", "broker")
    damaged = F.when(~F.col("mine.is_right") | ~F.col("theirs.is_right"), F.col("base_offset"))
    both = both.withColumn("damaged_from", F.min(damaged).over(pair))
    candidates = (
        both.where("damaged_from is null or base_offset < damaged_from")
        .where("base_offset >= greatest(begin, their_begin)")
        .where("greatest(mine.last_offset, theirs.last_offset) < least(end, their_end)")
        .where(_is_other_batch())
    )
    order = Window.partitionBy(*PARTITION, "broker").orderBy("base_offset")
    first = candidates.withColumn("rank", F.row_number().over(order)).where("rank = 1")
    missing = F.col("mine").isNull()
    found = F.concat(_difference(), F.format_string("; %d of %d slices differ", "differing", "compared"))
    kind = F.when(missing, MISSING_BATCH).otherwise(DIVERGED)
    return first.select(
        "broker", *PARTITION, kind.alias("kind"), F.col("base_offset").alias("offset"), found.alias("found")
    )


def _difference() -> Column:
    """Return the difference in words."""
    missing = F.format_string("broker %d has the batch at %d, this one has not", "reference", "base_offset")
    extra = F.format_string("broker %d has no batch at %d, this one has", "reference", "base_offset")
    other = F.format_string(
        "at %d broker %d has another batch: leader epoch %d and CRC %d, here %d and %d", "base_offset", "reference",
        "theirs.leader_epoch", "theirs.crc", "mine.leader_epoch", "mine.crc",
    )  # fmt: skip
    return F.when(F.col("mine").isNull(), missing).when(F.col("theirs").isNull(), extra).otherwise(other)


def _side(batches: DataFrame, pairs: DataFrame, role: str, name: str) -> DataFrame:
    """Return the batches of one side of each pair, as a struct."""
    columns = ["last_offset", "leader_epoch", "crc", "attributes", "producer_id", "record_count", "is_right"]
    sides = pairs.select(*PARTITION, "reference", "broker", "first_offset", F.col("last_offset").alias("to_offset"))
    theirs = batches.select(*PARTITION, F.col("broker").alias(role), "base_offset", F.struct(*columns).alias(name))
    if role == "broker":
        joined = sides.join(theirs, [*PARTITION, "broker"])
    else:
        joined = sides.join(theirs, [*PARTITION, "reference"])
    inside = f"base_offset >= first_offset and {name}.last_offset <= to_offset"
    return joined.where(inside).select(*PARTITION, "reference", "broker", "base_offset", name)


def _is_other_batch() -> Column:
    mine, theirs = F.col("mine"), F.col("theirs")
    may_be_cleaned = F.col("base_offset") < F.col("gaps_to")
    one_sided = mine.isNull() | theirs.isNull()
    same_place = (
        (mine["last_offset"] == theirs["last_offset"])
        & (mine["leader_epoch"] == theirs["leader_epoch"])
        & (mine["producer_id"] == theirs["producer_id"])
    )
    has_horizon = (mine["attributes"].bitwiseOR(theirs["attributes"])).bitwiseAND(DELETE_HORIZON_BIT) != 0
    was_cleaned = may_be_cleaned & ((mine["record_count"] != theirs["record_count"]) | has_horizon)
    is_other = ~same_place | ((mine["crc"] != theirs["crc"]) & ~was_cleaned)
    return F.when(one_sided, ~may_be_cleaned).otherwise(is_other)
