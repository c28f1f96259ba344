"""Compaction of partitions whose keys fit in a task: one after the other, each with a map of its newest records.

The first pass reads keys, without values, from the first dirty offset to the end. In a first compaction this is the
whole range: then the survivors are known by their offsets, and the second pass reads no keys. Otherwise records below
the first dirty offset are looked up by their keys as they are rewritten. From the first batch of a transaction on, keys
are read in a pass of their own, once the markers have shown which transactions were aborted.

Memory: `memory_bytes` for the map, 8 bytes more for each key, and some chunks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from sparklog.client import Maintenance
from sparklog.records.aborted import NONE_ABORTED, AbortedRanges
from sparklog.records.key_map import KeyMap
from sparklog.spark.compaction.keys import CompactionStrategy
from sparklog.spark.compaction.rewrite import Kept, PartitionRewriter, offsets_of
from sparklog.spark.compaction.work import (
    BY_TASK,
    TOO_LARGE,
    CompactionOutcome,
    CompactionSettings,
    PartitionWork,
    outcome_of,
    outcome_of_error,
)

logger = logging.getLogger(__name__)


def compact_in_task(
    works: Iterable[PartitionWork], settings: CompactionSettings
) -> Iterator[tuple[PartitionWork, CompactionOutcome]]:
    """Compact the partitions one after the other, and yield their outcomes; an error becomes the outcome."""
    with Maintenance(**settings.client) as maintenance:
        for work in works:
            try:
                yield work, _compact_partition(work, settings, maintenance)
            except Exception as error:  # any error is reported as the outcome, and the other partitions go on
                logger.warning("%s was not compacted", work.log.partition, exc_info=error)
                yield work, outcome_of_error(work, error, BY_TASK)


def _compact_partition(
    work: PartitionWork, settings: CompactionSettings, maintenance: Maintenance
) -> CompactionOutcome:
    rewriter = PartitionRewriter(work, settings, maintenance, how=BY_TASK)
    strategy = CompactionStrategy.of(work.log.config)
    newest = KeyMap(settings.memory_bytes, settings.seed, versioned=strategy.is_versioned)
    plan = work.plan

    def has_room(data: bytes, aborted: AbortedRanges = NONE_ABORTED) -> bool:
        found = strategy.read(data, plan.keys_from_offset, plan.end_offset, aborted)
        return all(newest.put(records.keys, records.offsets, records.versions) for records in found)

    later = []
    for segment in plan.segments:
        is_dirty = segment.next_offset > plan.keys_from_offset
        for data in rewriter.survey(segment):
            if is_dirty and not rewriter.has_transactions and not has_room(data):
                return outcome_of(work, TOO_LARGE)
        if is_dirty and rewriter.has_transactions:
            later.append(segment)
    aborted = rewriter.end_survey()
    for segment in later:
        for data in rewriter.read(segment):
            if not has_room(data, aborted):
                return outcome_of(work, TOO_LARGE)
    kept = survivors(newest, strategy, plan.keys_from_offset)
    for group in plan.groups:
        rewriter.rewrite(group, kept)
    return rewriter.finish(keys=len(newest))


def survivors(newest: KeyMap, strategy: CompactionStrategy, keys_from_offset: int) -> Kept:
    """Return a function that selects the records to keep; `newest` has all keys from `keys_from_offset` on."""
    behind = newest.newest_offsets()

    def kept(data: bytes) -> NDArray[np.int64]:
        first, last = offsets_of(data)
        if first >= keys_from_offset:
            return behind
        before = [
            records.offsets[newest.survives(records.keys, records.offsets, records.versions)]
            for records in strategy.read(data, offset_to=keys_from_offset)
        ]
        return np.concatenate([*before, behind[: np.searchsorted(behind, last, "right")]])

    return kept
