"""Batch reads: the plan, which Spark asks for once, and the work of each task.

Spark sends the reader object to the tasks, so it holds only options, schema and predicate.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sparklog.arrow.columns import TableShape
from sparklog.arrow.segments import settled
from sparklog.spark.folders import open_lookup
from sparklog.spark.shipping import TaskObject, missing_module_text
from sparklog.spark.source.files import read_files
from sparklog.spark.source.filters import EVERYTHING, fold
from sparklog.spark.source.offsets import Lookup, batch_ranges, report_losses
from sparklog.spark.source.options import ReadMode, ReadOptions
from sparklog.spark.source.scan import FetchTask, FilesTask, plan_tasks
from sparklog.spark.spark_api import Filter, arrow_schema

logger = logging.getLogger("sparklog.spark")
Watch = Callable[[pa.RecordBatch], None]


class TopicReader(TaskObject, DataSourceReader):
    """Reads all records that the options select."""

    predicate = EVERYTHING

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[Any]:
        lookup = open_lookup(self._options)
        try:
            return settled(lambda: self._plan(lookup))
        finally:
            lookup.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._options, self._schema)

    def _plan(self, lookup: Lookup) -> list[Any]:
        if self._options.read_mode is ReadMode.HISTORY:
            from sparklog.spark.history.plan import plan_history  # loads deltalake, which no other read needs

            return plan_history(self._options, lookup, self.predicate)
        ranges, lost = batch_ranges(self._options, lookup)
        report_losses(lost, fail=self._options.fail_on_data_loss)
        return plan_tasks(self._options, lookup, ranges, self.predicate)


class PushdownReader(TopicReader):
    """Reads the records that the query's filters allow. Only for use where Spark pushes filters down: see `source`."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self.predicate, remaining = fold(filters)
        return remaining


def read_task(
    task: InputPartition, options: ReadOptions, schema: StructType, *, watch: Watch | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the records of one task, in offset order, in the columns that Spark expects.

    watch: called with each batch of records, headers included, before it is yielded
    """
    with annotated_failures(task, options):
        yield from _read_task(task, options, schema, watch)


@contextmanager
def annotated_failures(task: InputPartition, options: ReadOptions) -> Iterator[None]:
    """Add partition, offsets and place of the task to its error, as a note, and log the error.

    Spark shows only the error of a failed task, and an error about damaged bytes does not name their place.
    """
    try:
        yield
    except Exception as error:
        brokers = f" (brokers {options.broker.bootstrap_servers})" if options.broker else ""
        if isinstance(error, ModuleNotFoundError):
            error.add_note(missing_module_text(error))
        error.add_note(f"while reading {task}{brokers}")
        logger.error("reading %s%s failed: %s: %s", task, brokers, type(error).__name__, error)
        raise


def _read_task(
    task: InputPartition, options: ReadOptions, schema: StructType, watch: Watch | None
) -> Iterator[pa.RecordBatch]:
    shape = TableShape(arrow_schema(schema), options.decoding)
    columns = shape.decoded if watch is None else tuple({*shape.decoded, "headers"})
    match task:
        case FilesTask():
            records = read_files(task, options, columns)
        case FetchTask(whole):
            from sparklog.spark.broker import fetch_range  # loads the gRPC client: only for tasks that fetch

            records = fetch_range(whole, options)
        case _ if options.read_mode is ReadMode.HISTORY:
            # Loads Parquet, which no other read needs.
            from sparklog.spark.history.archived import HistoryTask, read_history

            if not isinstance(task, HistoryTask):
                return iter(())  # Spark's own task, as below
            records = read_history(task, options, columns)
        case _:
            return iter(())  # Spark creates a task of its own if the plan has none
    return shape.apply(_watch_batches(records, watch), task.partition)


def _watch_batches(batches: Iterator[pa.RecordBatch], watch: Watch | None) -> Iterator[pa.RecordBatch]:
    if watch is None:
        return batches

    def each() -> Iterator[pa.RecordBatch]:
        for records in batches:
            watch(records)
            yield records

    return each()
