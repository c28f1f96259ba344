"""The second pass over a partition: its groups of segments are rewritten and replaced, oldest first.

    survey    ─▶ each segment's headers (survey.py)
    rewrite   ─▶ begin_replace ─▶ the sources read, rewritten, written to the lease's path or uploaded ─▶ commit_replace
    finish    ─▶ expired tombstones that could not go before ─▶ set_cleaned_offset

The order matters: a tombstone is removed only after the records that it deletes, so a run that dies between two groups
brings no deleted record back. With versions, a tombstone may delete records that come after it. Then tombstones stay
while the groups are rewritten, and segments with expired tombstones are rewritten again once all groups are in place. A
group of one segment without any change is not replaced. Markers that are to be removed wait like tombstones; the
markers of transactions with batches stay until a later pass.

Damaged bytes raise CorruptRecord or InvalidRecord, before their group is replaced.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from sparklog.base.errors import SparklogError
from sparklog.client import Maintenance
from sparklog.client.maintenance.maintenance import Lease
from sparklog.log.compaction import Segments
from sparklog.log.description import SegmentDescription
from sparklog.records import header_kernels as headers
from sparklog.records.arrow import AbortedRanges, decode_batches
from sparklog.records.batch import MAGIC
from sparklog.records.rewriting import NEVER, Rewriter, RewriteSummary
from sparklog.records.transaction_survey import NO_TRANSACTIONS
from sparklog.spark.compaction.keys import CompactionStrategy
from sparklog.spark.compaction.survey import SegmentSurvey, chunks_behind, header_tables
from sparklog.spark.compaction.work import (
    COMPACTED,
    MB,
    UNCHANGED,
    CompactionOutcome,
    CompactionSettings,
    PartitionWork,
)
from sparklog.spark.segment_files import is_visible, read_segment

LEASE_MS = 60_000
SLOWEST_BYTES_PER_S = 5_000_000
"""Slowest writing for which a group's lease is long enough: nothing renews the lease while the file is written."""
Longs = NDArray[np.int64]
Kept = Callable[[bytes], Longs]
"""Maps whole batches to the offsets, in order, of records that are not superseded; may return other offsets too."""


class PartitionRewriter:
    """Rewriter of one partition. Survey every segment first, in order, then end the survey.

    Any error ends the work on the partition.
    """

    def __init__(
        self, work: PartitionWork, settings: CompactionSettings, maintenance: Maintenance, *, how: str
    ) -> None:
        self._work = work
        self._settings = settings
        self._maintenance = maintenance
        self._how = how
        self._is_versioned = CompactionStrategy.of(work.log.config).is_versioned
        self._started = time.monotonic()
        self._survey = SegmentSurvey(work.log.producer_ids)
        self._transactions = NO_TRANSACTIONS
        self._segments: list[SegmentDescription] = []
        self._done: list[RewriteSummary] = []
        self._read_bytes = self._written_bytes = 0

    def read(self, segment: SegmentDescription) -> Iterator[bytes]:
        """Yield a segment in chunks of whole batches."""
        settings = self._settings
        for data in read_segment(self._work.log, segment, settings.client, settings.chunk_bytes):
            self._read_bytes += len(data)
            yield data

    def survey(self, segment: SegmentDescription) -> Iterator[bytes]:
        """Yield a segment as `read` does, and survey it."""
        for data in self.read(segment):
            self._survey.take(segment.base_offset, data)
            yield data

    @property
    def has_transactions(self) -> bool:
        """Whether a segment surveyed so far has batches of transactions."""
        return self._survey.has_transactions

    def end_survey(self) -> AbortedRanges:
        """Return the aborted transactions of all segments. Raises InvalidRecord if one has not ended."""
        log, settings = self._work.log, self._settings
        behind = chunks_behind(log, self._work.plan.segments, settings.client, settings.chunk_bytes)
        self._survey.resolve(log.partition, behind, log.last_stable_offset)
        self._transactions = self._survey.transactions()
        return self._transactions.aborted

    def rewrite(self, group: Segments, kept: Kept) -> None:
        """Replace the group by one segment, unless that would change nothing."""
        segment, done = self._replace(group, kept, NEVER if self._is_versioned else self._settings.now_ms)
        self._segments.append(segment)
        self._done.append(done)

    def _replace(self, group: Segments, kept: Kept, expired_ms: int) -> tuple[SegmentDescription, RewriteSummary]:
        """Replace the group; return the new segment and the result for its batches."""
        if len(group) == 1 and (same := self._unchanged(group, kept, expired_ms)):
            return group[0], same
        log = self._work.log
        lease_ms = LEASE_MS + 1000 * sum(segment.size_bytes for segment in group) // SLOWEST_BYTES_PER_S
        lease = self._maintenance.begin_replace(log, group, self._settings.holder, lease_ms)
        try:
            done = self._stage(lease, group, kept, expired_ms)
            new = self._maintenance.commit_replace(lease, log.leader_epoch, done.bytes_written, done.crc32c)
        except BaseException:
            with suppress(SparklogError):  # the lease expires anyway, and the first error is the one to report
                self._maintenance.abort_replace(lease)
            raise
        self._written_bytes += done.bytes_written
        self._survey.note_end(new.base_offset, self._end_of(group))
        return new, done

    def finish(self, keys: int) -> CompactionOutcome:
        """End the work once all groups are in place, and return its outcome.

        Expired tombstones that had to stay are dropped, and the cleaned offset is set. `keys` is the number of distinct
        keys, for the outcome.
        """
        plan = self._work.plan
        if self._is_versioned:
            self._drop_expired()
        self._maintenance.set_cleaned_offset(self._work.log, plan.end_offset, self._segments)
        seconds = time.monotonic() - self._started
        horizons = [done.next_delete_horizon_ms for done in self._done if done.next_delete_horizon_ms is not None]
        return CompactionOutcome(
            topic=plan.partition.topic,
            partition=plan.partition.partition,
            outcome=COMPACTED if self._written_bytes else UNCHANGED,
            reason=self._work.reason,
            how=self._how,
            cleaned_offset=plan.end_offset,
            next_delete_horizon_ms=min(horizons, default=None),
            keys=keys,
            records_before=sum(done.records_read for done in self._done),
            records_after=sum(done.records_kept for done in self._done),
            bytes_before=self._work.size_bytes,
            bytes_after=sum(segment.size_bytes for segment in self._segments),
            segments_before=len(plan.segments),
            segments_after=len(self._segments),
            read_mb=self._read_bytes / MB,
            written_mb=self._written_bytes / MB,
            seconds=seconds,
            mb_per_s=self._work.size_bytes / MB / seconds,
        )

    def _drop_expired(self) -> None:
        """Drop the tombstones whose delete horizon had passed when the run began."""
        expired_ms = self._settings.now_ms - 1  # not horizons set in this run, with delete.retention.ms=0
        for number, done in enumerate(self._done):
            if done.next_delete_horizon_ms is not None and done.next_delete_horizon_ms <= expired_ms:
                self._segments[number], again = self._replace((self._segments[number],), all_offsets, expired_ms)
                self._done[number] = replace(again, records_read=done.records_read)

    def _unchanged(self, group: Segments, kept: Kept, expired_ms: int) -> RewriteSummary | None:
        """Return the result for a group in which nothing changes; None at the first change."""
        rewriter = self._rewriter(group, expired_ms)
        for _ in self._batches(rewriter, group, kept):
            if rewriter.result.is_changed:
                return None
        return rewriter.result

    def _stage(self, lease: Lease, group: Segments, kept: Kept, expired_ms: int) -> RewriteSummary:
        """Write the new segment to the lease's path if this machine sees it, else upload the segment."""
        rewriter = self._rewriter(group, expired_ms)
        batches = self._batches(rewriter, group, kept)
        if is_visible(self._work.log):
            with open(os.open(lease.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644), "wb", buffering=0) as file:
                for data in batches:
                    file.write(data)
        else:
            self._maintenance.upload(lease, batches)
        return rewriter.result

    def _end_of(self, group: Segments) -> int | None:
        return self._survey.end_of(segment.base_offset for segment in group)

    def _rewriter(self, group: Segments, expired_ms: int) -> Rewriter:
        return Rewriter(
            now_ms=self._settings.now_ms,
            delete_retention_ms=self._work.log.config.delete_retention_ms,
            keep_empty=self._survey.last_batches,
            last_offset=self._end_of(group),
            transactions=self._transactions,
            expired_ms=expired_ms,
        )

    def _batches(self, rewriter: Rewriter, group: Segments, kept: Kept) -> Iterator[bytes]:
        for segment in group:
            for data in self.read(segment):
                yield rewriter.rewrite(data, kept(data))


def all_offsets(data: bytes) -> Longs:
    """Return the offsets of all records of some whole batches."""
    parts = [batch["offset"].to_numpy() for batch in decode_batches(data, columns=("offset",))]
    return np.concatenate([np.empty(0, np.int64), *parts])


def offsets_of(data: bytes) -> tuple[int, int]:
    """Return a lower bound of the first offset in some whole batches, and the last offset. Raises CorruptRecord."""
    tables = list(header_tables(data))
    first = int(tables[0][0, headers.BASE_OFFSET]) if tables[0][0, headers.MAGIC] == MAGIC else 0
    return first, int(tables[-1][-1, headers.LAST_OFFSET])
