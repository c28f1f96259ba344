"""Compaction of partitions with more keys than a task may hold: Spark's shuffle finds the newest records, on disk.

    segments ──▶ keys               hash of the key, version, offset: nothing else of a record is needed
             ──▶ spread             by hash, before the aggregation: the keys that one task reads seldom repeat
             ──▶ newest_offsets     of each key, by a hash aggregation, which spills if memory is short
             ──▶ sorted             a partition's survivors go to one task, in offset order
             ──▶ rewritten          group by group of segments, as in task.py

A partition's keys are read from the log start on, also those of records compacted before, so its survivors are exactly
the newest offsets. Memory of the task that rewrites: 8 bytes for each survivor of one group of segments.

A task that meets a transaction reads on behind its segment until it knows which of its transactions were aborted.

A key is identified by its 128-bit hash, as in `records/key_map.py`. After the keys of each segment comes a note that
all of them were read: a row with an offset below 0. If a note is missing, the partition is not changed.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparklog.base.errors import InvalidUpdateVersion, SparklogError
from sparklog.client import Maintenance
from sparklog.log.description import SegmentDescription
from sparklog.records.aborted import NONE_ABORTED
from sparklog.records.key_map import hashes_of
from sparklog.spark.compaction.keys import CompactionStrategy, KeyedRecords
from sparklog.spark.compaction.rewrite import PartitionRewriter
from sparklog.spark.compaction.survey import has_transactions, transactions_in
from sparklog.spark.compaction.work import (
    BY_SHUFFLE,
    REPORT_ARROW,
    REPORT_SCHEMA,
    CompactionOutcome,
    CompactionSettings,
    PartitionWork,
    outcome_of_error,
)
from sparklog.spark.segment_files import read_segment
from sparklog.spark.shipping import task_function

KEYS_SCHEMA = "work int, high bigint, low bigint, version bigint, offset bigint"
"""`work`: the partition's number in the list of works."""
Batches = Iterator[pa.RecordBatch]
Longs = NDArray[np.int64]
NOT_READ = -(2**62)
PIECES_PER_CORE = 4
ROWS_OF_PARTITION = 1 << 20
"""Rows that one aggregation gets: 100 MB at most, if all keys differ."""
MOST_PARTITIONS = 2000
logger = logging.getLogger(__name__)


def compact_by_shuffle(
    spark: SparkSession, works: Sequence[PartitionWork], settings: CompactionSettings
) -> list[CompactionOutcome]:
    """Compact the partitions, all in one Spark job, and return an outcome for each."""
    keys = read_keys(spark, works, settings).repartition(partitions_for(works), "work", "high", "low")
    survivors = newest_offsets(keys)
    ordered = survivors.repartition(len(works), "work").sortWithinPartitions("work", "offset")
    rows = ordered.mapInArrow(task_function(_rewriting(works, settings)), REPORT_SCHEMA).collect()
    return [CompactionOutcome(**row.asDict()) for row in rows]


def partitions_for(works: Sequence[PartitionWork]) -> int:
    """Return the number of shuffle partitions for the keys, so that each is aggregated in memory, not on disk."""
    segments = [segment for work in works for segment in work.plan.segments]
    rows = sum(min(segment.next_offset - segment.base_offset, segment.size_bytes) for segment in segments)
    return min(1 + rows // ROWS_OF_PARTITION, MOST_PARTITIONS)


def newest_offsets(keys: DataFrame) -> DataFrame:
    """Return `work` and `offset` of the newest record of each key: the greatest version, if any, then offset."""
    by_key = keys.groupBy("work", "high", "low")
    if "version" not in keys.columns:
        return by_key.agg(F.max("offset").alias("offset")).select("work", "offset")
    newest = by_key.agg(F.max(F.struct("version", "offset")).alias("newest"))
    return newest.select("work", F.col("newest.offset").alias("offset"))


def read_keys(spark: SparkSession, works: Sequence[PartitionWork], settings: CompactionSettings) -> DataFrame:
    """Return rows of KEYS_SCHEMA, one per record with a key and one per segment; `version` only if a topic needs it."""
    versioned = any(CompactionStrategy.of(work.log.config).is_versioned for work in works)
    columns = [column for column in KEYS_SCHEMA.split(", ") if versioned or not column.startswith("version ")]
    pieces = [(number, index) for number, work in enumerate(works) for index in range(len(work.plan.segments))]
    tasks = min(len(pieces), PIECES_PER_CORE * spark.sparkContext.defaultParallelism)

    def read(batches: Batches) -> Batches:
        for batch in batches:
            for piece in batch["id"].to_pylist():
                number, index = pieces[piece]
                for rows in segment_rows(works, number, index, settings):
                    yield rows if versioned else rows.drop_columns(["version"])

    return spark.range(0, len(pieces), 1, tasks).mapInArrow(task_function(read), ", ".join(columns))


def segment_rows(works: Sequence[PartitionWork], number: int, index: int, settings: CompactionSettings) -> Batches:
    """Yield the rows of one segment.

    The last row tells whether it could be read; if not, the rewriting finds out why.
    """
    note = -1 - index
    try:
        for records in _keyed_records(works[number], works[number].plan.segments[index], settings):
            yield _key_rows(number, hashes_of(records.keys, settings.seed), records)
    except (SparklogError, OSError):
        note = NOT_READ
    hashes = np.array([[index, 0]], np.uint64)
    yield _key_rows(number, hashes, KeyedRecords(pa.array([b""]), np.array([note]), np.zeros(1, np.int64)))


def _keyed_records(
    work: PartitionWork, segment: SegmentDescription, settings: CompactionSettings
) -> Iterator[KeyedRecords]:
    log, aborted = work.log, None
    for data in read_segment(log, segment, settings.client, settings.chunk_bytes):
        if aborted is None and has_transactions(data):
            aborted = transactions_in(log, segment, settings.client, settings.chunk_bytes).aborted
        yield from CompactionStrategy.of(log.config).read(data, log.log_start_offset, aborted=aborted or NONE_ABORTED)


def _key_rows(number: int, hashes: NDArray[np.uint64], records: KeyedRecords) -> pa.RecordBatch:
    count = len(records.offsets)
    versions = records.versions if records.versions is not None else np.zeros(count, np.int64)
    words = np.ascontiguousarray(hashes.T).view(np.int64)
    batch = pa.RecordBatch.from_arrays(
        [pa.array(np.full(count, number, np.int32)), *map(pa.array, (*words, versions, records.offsets))],
        names=["work", "high", "low", "version", "offset"],
    )
    return batch.filter(records.keys.is_valid()) if records.keys.null_count else batch


def _rewriting(works: Sequence[PartitionWork], settings: CompactionSettings) -> Callable[[Batches], Batches]:
    def rewrite(batches: Batches) -> Batches:
        with Maintenance(**settings.client) as maintenance:
            for number, runs in groupby(_partition_runs(batches), key=lambda run: run[0]):
                arrays = (offsets for _, offsets in runs)
                outcome = rewrite_sorted(works[number], settings, maintenance, arrays)
                yield pa.RecordBatch.from_pylist([dataclasses.asdict(outcome)], REPORT_ARROW)

    return rewrite


def rewrite_sorted(
    work: PartitionWork, settings: CompactionSettings, maintenance: Maintenance, offsets: Iterable[Longs]
) -> CompactionOutcome:
    """Rewrite a partition and return the outcome; an error becomes the outcome.

    offsets: the notes of its segments, which are below 0, then its survivors, in order
    """
    survivors = SortedOffsets(offsets)
    rewriter = PartitionRewriter(work, settings, maintenance, how=BY_SHUFFLE)
    try:
        _check_notes(work, settings, survivors.below(0))
        for segment in work.plan.segments:
            for _ in rewriter.survey(segment):
                pass
        rewriter.end_survey()
        for group in work.plan.groups:
            kept = survivors.below(group[-1].next_offset)
            rewriter.rewrite(group, partial(_keep_all, kept))
        return rewriter.finish(keys=survivors.count)
    except Exception as error:  # any error is reported as the outcome, and the other partitions go on
        logger.warning("%s was not compacted", work.log.partition, exc_info=error)
        return outcome_of_error(work, error, BY_SHUFFLE)


def _keep_all(kept: Longs, _: bytes) -> Longs:
    """Return `kept` for any chunk of a group: the survivors of the group include the chunk's."""
    return kept


class SortedOffsets:
    """A sorted sequence of offsets that arrives in arrays."""

    def __init__(self, arrays: Iterable[Longs]) -> None:
        self._arrays = iter(arrays)
        self._rest = np.empty(0, np.int64)
        self.count = 0
        """Offsets taken so far, without negative ones."""

    def below(self, end: int) -> Longs:
        """Take and return the next offsets below `end`."""
        taken = []
        rest: Longs | None = self._rest
        while rest is not None:
            cut = int(np.searchsorted(rest, end))
            taken.append(rest[:cut])
            self._rest = rest[cut:]
            rest = next(self._arrays, None) if cut == len(rest) else None
        found = np.concatenate(taken)
        self.count += int((found >= 0).sum())
        return found


def _check_notes(work: PartitionWork, settings: CompactionSettings, notes: Longs) -> None:
    """Raise the error of a segment whose keys could not be read, or InvalidUpdateVersion if it can be read now."""
    segments = work.plan.segments
    missing = set(range(len(segments))) - {-1 - note for note in notes.tolist()}
    for index in sorted(missing):
        for _ in _keyed_records(work, segments[index], settings):
            pass
    if missing:
        raise InvalidUpdateVersion(f"{work.log.partition}: {len(missing)} segments could be read only the second time")


def _partition_runs(batches: Batches) -> Iterator[tuple[int, Longs]]:
    """Yield the rows of `work` and `offset`, sorted by both, as runs of one partition each."""
    for batch in batches:
        numbers, offsets = batch["work"].to_numpy(), batch["offset"].to_numpy()
        edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for start, end in pairwise(edges):
            if start < end:
                yield int(numbers[start]), offsets[start:end]
