"""Streaming reads: what each trigger reads, and where a query continues after a restart.

Spark keeps one reader object per query, in a process of its own, and asks it for offsets; tasks read with a copy.
An offset is ``{"topic": {"0": 23, "1": 42}}``: the next offset to read of each partition, as in Spark's Kafka source.
The checkpoint holds these offsets, so a query continues exactly where it stopped. A partition that appears while a
query runs is read from its beginning.

Spark stores a batch's end before it runs the batch, but never the start of the first batch. After a restart in the
first batch, Spark asks for the initial offset again, and "latest" would then be another offset. So the first batch's
end carries its start, under a name that no topic can have: ``"@start": {"topic": {"0": 7}}``.

With ``group.id`` a query commits its progress to that consumer group, so tools that show the lag of groups show the
query's lag. Only the checkpoint decides where a query continues. A failed commit is logged, and the next commit makes
up for it. Spark reports a batch as done (`commit`) only once the next batch has records, but asks for the latest offset
as soon as the batch is done (`latestOffset`, whose start is the end of the finished batches). Both calls commit
progress.

A trigger ends at the last stable offset, before records of open transactions, unless the isolation level is
read_uncommitted. A query that began with read_uncommitted may already be above that offset. It then waits there.

Before Spark 4.2, `latestOffset` gets neither the start of a trigger nor a limit: a trigger reads all records. The first
batch's end does not carry its start then, because the source cannot tell the first batch from the first after a
restart.

The options limit how much a trigger reads (limits.py). Spark 4.2 passes at most one limit to a Python source, so all
limits of the options apply, unless Spark asks for everything (`Trigger.Once`). `Trigger.AvailableNow` does not wait for
more records.

Every call to a broker has a deadline (`BrokerOptions`): Spark waits for these methods without one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from sparklog.arrow.folders import ReadableOffsets
from sparklog.arrow.segments import settled
from sparklog.base.errors import SparklogError
from sparklog.base.ids import TopicPartition
from sparklog.spark.folders import open_lookup
from sparklog.spark.shipping import TaskObject
from sparklog.spark.source.backlog import Backlog, measure
from sparklog.spark.source.filters import EVERYTHING
from sparklog.spark.source.limits import TriggerPace
from sparklog.spark.source.offsets import (
    Lookup,
    PartitionRange,
    from_json,
    report_losses,
    starting_offsets,
    stream_ranges,
    to_json,
)
from sparklog.spark.source.options import ReadMode, ReadOptions, TriggerLimits
from sparklog.spark.source.read import read_task
from sparklog.spark.source.scan import Task, plan_tasks
from sparklog.spark.spark_api import (
    HAS_LIMITS,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
    spark_version_error,
)

if TYPE_CHECKING:
    from sparklog.spark.history.archived import HistoryTask
    from sparklog.spark.history.plan import HistoryLookup
    from sparklog.spark.source.tracing import BatchSpans, TracedTask

Json = dict[str, Any]
FIRST_START = "@start"
logger = logging.getLogger("sparklog.spark")


class TopicStreamReader(TaskObject, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the records that arrive in the topics that the options select."""

    def __init__(
        self,
        options: ReadOptions,
        schema: StructType,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if options.trigger_limits != TriggerLimits() and not HAS_LIMITS:
            raise spark_version_error("4.2", "a limit of triggers (maxOffsetsPerTrigger and others)")
        self._options = options
        self._schema = schema
        self._sleep = sleep
        self._monotonic = monotonic
        self._pace = TriggerPace()
        self._opened: Lookup | None = None
        self._history: HistoryLookup | None = None
        """The same lookup as `_opened`, with readMode = history."""
        self._spans: BatchSpans | None = None
        self._initial: Json | None = None
        self._initial_error: SparklogError | None = None
        self._begun = False
        """Whether Spark has asked for offsets beyond the first batch."""
        self._latest: dict[TopicPartition, int] | None = None
        self._target: dict[TopicPartition, int] | None = None
        self._committed: dict[TopicPartition, int] = {}
        """Offsets that this query has committed to the consumer group."""

    def initialOffset(self) -> Json:  # noqa: N802
        if self._initial_error is not None:
            raise self._initial_error
        if self._initial is None:
            bounds = self._lookup.bounds(self._options.selection)
            start, lost = starting_offsets(self._options.starting, bounds, self._lookup)
            report_losses(lost, fail=self._options.fail_on_data_loss)
            self._initial = to_json(start)
        return self._initial

    def _note_initial_offset(self) -> None:
        """Find the initial offset now: Spark asks later, when there may be more records, and not after a restart.

        So an error is raised only once Spark asks: the checkpoint may be right although the options no longer are.
        """
        try:
            self.initialOffset()
        except SparklogError as error:
            self._initial_error = error

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limits = self._options.trigger_limits
        if limits.max_offsets:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes:
            return ReadMaxBytes(limits.max_bytes)
        return ReadMinRows(limits.min_offsets) if limits.min_offsets else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = _trigger_ends(self._lookup.bounds(self._options.selection), {})

    def latestOffset(self, start: Json | None = None, limit: ReadLimit | None = None) -> Json:  # noqa: N802
        if start is None:  # before Spark 4.2
            self._note_initial_offset()
            self._latest = settled(lambda: self._end(self._latest or {}, ReadAllAvailable()))
            return to_json(self._latest or {})
        begin = _without_first_start(start)
        if start != self._initial:
            self._commit_progress(begin)
        end = settled(lambda: self._end(begin, limit))
        if end is None:
            return start
        self._begun = self._begun or start != self._initial
        if not self._begun:
            return {**to_json(end), FIRST_START: start}
        return start if end == begin else to_json(end)  # unchanged: Spark compares offsets as text

    def _end(self, begin: dict[TopicPartition, int], limit: ReadLimit | None) -> dict[TopicPartition, int] | None:
        """Return the end of a trigger that begins at `begin`; None: the trigger waits for more records."""
        bounds = self._settled_bounds(begin)
        self._latest = _trigger_ends(bounds, begin)
        end = self._latest if self._target is None else _cap_at_target(self._latest, self._target, begin)
        start = {partition: max(begin.get(partition, 0), bounds[partition].log_start) for partition in end}
        limits = _trigger_limits(self._options.trigger_limits, limit)
        if self._target is not None:
            limits = replace(limits, min_offsets=0)
        return self._pace.end(limits, start, end, self._measure, self._monotonic())

    def _measure(self, ranges: list[PartitionRange]) -> Mapping[TopicPartition, Backlog]:
        return measure(self._lookup, ranges) if self._history is None else self._history.measure(ranges)

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        return None if self._latest is None else to_json(self._latest)

    def partitions(self, start: Json, end: Json) -> Sequence[Task | HistoryTask | TracedTask]:
        tasks = settled(lambda: self._plan(start, end))
        if self._options.tracing_endpoint is None:
            return tasks
        if self._spans is None:
            from sparklog.spark.source.tracing import BatchSpans  # only where traces are wanted, as in read

            self._spans = BatchSpans(self._options.tracing_endpoint)
        return self._spans.begin(tasks, start, end)

    def _plan(self, start: Json, end: Json) -> Sequence[Task | HistoryTask]:
        begin = _without_first_start(end.get(FIRST_START, start) if start != end else start)
        ends = _without_first_start(end)
        ranges, lost = stream_ranges(begin, ends, self._settled_bounds(ends))
        if self._history is not None:
            return self._history.plan(ranges, EVERYTHING, lost)
        report_losses(lost, fail=self._options.fail_on_data_loss)
        return plan_tasks(self._options, self._lookup, ranges, EVERYTHING)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if self._options.tracing_endpoint is not None:
            from sparklog.spark.source.tracing import TracedTask, read_traced

            if isinstance(partition, TracedTask):
                return read_traced(partition, self._options, self._schema)
        return read_task(partition, self._options, self._schema)

    def commit(self, end: Json) -> None:
        self._commit_progress(_without_first_start(end))

    def _commit_progress(self, offsets: dict[TopicPartition, int]) -> None:
        """After a batch: commit changed offsets to the consumer group, if the options name one."""
        if self._spans is not None:
            self._spans.end()
        broker = self._options.broker
        changed = {item: offset for item, offset in offsets.items() if self._committed.get(item) != offset}
        if broker is None or broker.group_id is None or not changed:
            return
        try:
            self._lookup.commit(changed)
            self._committed.update(changed)
        except SparklogError as error:
            logger.warning("progress was not committed to group %s: %s", broker.group_id, error)

    def stop(self) -> None:
        if self._spans is not None:
            self._spans.close()
        if self._opened is not None:
            self._opened.close()

    def __getstate__(self) -> Json:
        return {
            **self.__dict__,
            "_opened": None,
            "_history": None,
            "_spans": None,
        }  # connections stay in the process that made them

    @property
    def _lookup(self) -> Lookup:
        if self._opened is None:
            self._opened = open_lookup(self._options)
            if self._options.read_mode is ReadMode.HISTORY:
                from sparklog.spark.history.plan import HistoryLookup  # loads deltalake, which no other read needs

                self._opened = self._history = HistoryLookup(self._options, self._opened)
        return self._opened

    def _settled_bounds(self, known: dict[TopicPartition, int]) -> dict[TopicPartition, ReadableOffsets]:
        """Return the current bounds. Ask again while a log seems to end before an offset that was known already.

        A broker that has just started may not know its high watermarks yet. A log that stays too short has lost
        records; `partitions` reports that.
        """
        broker = self._options.broker
        bounds = self._lookup.bounds(self._options.selection)
        for _ in range(broker.retries if broker else 0):
            if all(known.get(partition, 0) <= each.high_watermark for partition, each in bounds.items()):
                break
            self._sleep(broker.retry_backoff_ms / 1000 if broker else 0)
            bounds = self._lookup.bounds(self._options.selection)
        return bounds


def _trigger_limits(limits: TriggerLimits, limit: ReadLimit | None) -> TriggerLimits:
    """Return the limits of a trigger: those of the options, with the one that Spark passes instead of its own."""
    match limit:
        case ReadMaxRows(count):
            return replace(limits, max_offsets=count)
        case ReadMaxBytes(count):
            return replace(limits, max_bytes=count)
        case ReadMinRows(count):
            return replace(limits, min_offsets=count)
    return TriggerLimits()


def _without_first_start(offset: Json) -> dict[TopicPartition, int]:
    return from_json({topic: numbers for topic, numbers in offset.items() if topic != FIRST_START})


def _trigger_ends(
    bounds: dict[TopicPartition, ReadableOffsets], begin: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the end of a trigger that begins at `begin` and has no limits."""
    return {partition: each.end_after(begin.get(partition, 0)) for partition, each in bounds.items()}


def _cap_at_target(
    latest: dict[TopicPartition, int], target: dict[TopicPartition, int], begin: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return `latest`, capped at `target`: records that arrive after AvailableNow has begun are for the next run."""
    return {
        partition: min(offset, max(target[partition], begin.get(partition, 0)))
        if partition in target
        else begin[partition]
        for partition, offset in latest.items()
        if partition in target or partition in begin
    }
