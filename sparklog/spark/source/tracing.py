"""Spans of a streaming query: one for each micro-batch, and a child span for each of its tasks.

A task's span has links to the traces of the records that the task has read. The records' `traceparent` headers name
these traces; a span has at most MAX_LINKS. The plan brings the batch's span to the tasks. Without the option
`tracing.otlp.endpoint`, plans have no spans, and headers are read only for a query that needs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from sparklog.base.tracing import CONSUMER, TRACEPARENT, Tracing, traceparent_of
from sparklog.spark.source.options import ReadOptions
from sparklog.spark.source.read import read_task
from sparklog.spark.source.scan import Task

MAX_LINKS = 128
"""OpenTelemetry's own limit for a span."""
SERVICE = "sparklog-spark"
_TRACE = slice(3, 35)  # of a traceparent: the id of its trace


@dataclass(frozen=True, slots=True)
class TracedTask(InputPartition):
    """A task, and the traceparent of its batch's span."""

    task: Task
    traceparent: str


class BatchSpans:
    """The span of a query's current micro-batch, on the driver."""

    def __init__(self, endpoint: str) -> None:
        """Raises ConfigError as Tracing does."""
        self._tracing = Tracing(endpoint, SERVICE, {}, at_once=True)  # Spark kills this process after the last batch
        self._span: Any = None

    def begin(self, tasks: Iterable[Task], start: Mapping[str, Any], end: Mapping[str, Any]) -> list[TracedTask]:
        """Begin the span of a batch, and return its tasks. Ends the span of the batch before."""
        self.end()
        attributes = {"sparklog.start": str(start), "sparklog.end": str(end)}
        self._span = self._tracing.start("micro-batch", "", CONSUMER, attributes)
        parent = traceparent_of(self._span)
        return [TracedTask(task, parent) for task in tasks]

    def end(self) -> None:
        """End the span of the batch in progress, if there is one."""
        if self._span is not None:
            self._span.end()
            self._span = None

    def close(self) -> None:
        """End the span in progress, and send the spans that are not sent yet."""
        self.end()
        self._tracing.close()


def read_traced(traced: TracedTask, options: ReadOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task as `read_task` does; at its end, send a span of the task."""
    assert options.tracing_endpoint is not None
    tracing = Tracing(options.tracing_endpoint, SERVICE, {}, at_once=True)
    links, partition = TraceLinks(), traced.task.partition
    attributes = {
        "messaging.destination.name": partition.topic,
        "messaging.destination.partition.id": partition.partition,
    }
    began = tracing.start("read", traced.traceparent, CONSUMER, attributes)
    try:
        yield from read_task(traced.task, options, schema, watch=links.collect)
    finally:
        began.set_attribute("messaging.batch.message_count", links.records)
        for each in links.found.values():
            tracing.link(began, each)
        began.end()
        tracing.close()


class TraceLinks:
    """The traces of the records read so far, and their number. `found` has one traceparent of each trace."""

    def __init__(self) -> None:
        self.records = 0
        self.found: dict[str, str] = {}

    def collect(self, records: pa.RecordBatch) -> None:
        """Count the records, and note the traces in their headers."""
        self.records += records.num_rows
        if len(self.found) >= MAX_LINKS:
            return
        pairs = records.column("headers").flatten()
        named = pc.equal(pairs.field("key"), TRACEPARENT)
        for value in pc.unique(pairs.field("value").filter(named)):
            text = (value.as_py() or b"").decode(errors="replace")
            self.found.setdefault(text[_TRACE], text)
            if len(self.found) >= MAX_LINKS:
                return
