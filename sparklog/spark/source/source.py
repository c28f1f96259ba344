"""The data source `sparklog`, for the format of ``spark.read``, ``readStream``, ``write`` and ``writeStream``.

Spark imports this module in every Python worker that plans or reads. So the module does not load the gRPC client;
modules that need a broker are imported where they are used. See `option_table` for the options and `columns` for the
columns.

Two properties of Spark 4.2 matter here:

- Spark plans a Python source once per ``load()``: a DataFrame or a view is a snapshot of the topics at its first use.
  Call ``load()`` again to see newer records.
- Spark keeps one plan per ``load()``, filters included. With ``spark.sql.python.filterPushdown.enabled``, a DataFrame
  that is used twice with different filters would be read both times with the filters of one use. So filters are pushed
  down only with the option ``filterPushdown``, by which the user promises to use the DataFrame with one filter.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from sparklog.spark.columns import check_columns, table_schema
from sparklog.spark.shipping import TaskObject
from sparklog.spark.source.option_parsing import parse_read_options, parse_typed_options, parse_write_options
from sparklog.spark.source.option_table import OptionUse
from sparklog.spark.source.options import ReadOptions, WriteOptions
from sparklog.spark.source.read import PushdownReader, TopicReader
from sparklog.spark.source.stream import TopicStreamReader

PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
"""The worker that plans a read when Spark pushes filters down; Spark refuses `pushFilters` in any other."""
COMMIT_WORKER = "pyspark.sql.worker.python_streaming_sink_runner"
"""The worker that commits a batch of a stream."""


class SparklogDataSource(TaskObject, DataSource):
    """Topics of a broker, or of a log directory, as a table."""

    @classmethod
    def name(cls) -> str:
        return "sparklog"

    def schema(self) -> StructType:
        include = self.options.get("includeHeaders", "false").strip().lower() == "true"
        raw, typed = table_schema(include_headers=include), parse_typed_options(self.options)
        if typed is None:
            return raw
        from sparklog.spark.source.decoding import typed_schema  # loads the decoders, as below

        return typed_schema(raw, typed)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._planned(schema, OptionUse.BATCH)
        if options.filter_pushdown and PUSHDOWN_WORKER in sys.modules:
            return PushdownReader(options, schema)
        return TopicReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return TopicStreamReader(self._planned(schema, OptionUse.STREAM), schema)

    def _planned(self, schema: StructType, use: OptionUse) -> ReadOptions:
        """Return the options of a read of these columns, with the schemas that its tasks need."""
        options, typed = parse_read_options(self.options, use), parse_typed_options(self.options)
        if typed is None:
            check_columns(schema)
            return options
        # Loads the decoders and the registry's client, which only reads of typed columns need.
        from sparklog.spark.source.decoding import plan_decoding

        return replace(options, decoding=plan_decoding(typed, schema, options.broker))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from sparklog.spark.source.write import TopicWriter  # loads the gRPC client, which tasks that read do not need

        return TopicWriter(self._planned_write(schema), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from sparklog.spark.source.write import TopicStreamWriter  # as in writer

        # A commit encodes nothing, and must not depend on the registry.
        options = parse_write_options(self.options) if COMMIT_WORKER in sys.modules else self._planned_write(schema)
        return TopicStreamWriter(options, schema)

    def _planned_write(self, schema: StructType) -> WriteOptions:
        """Return the options of a write of these columns, with the schemas that its tasks need."""
        options = parse_write_options(self.options)
        if options.typed is None:
            return options
        from sparklog.spark.source.encoding import plan_encoding  # loads the encoders and the registry's client

        return replace(options, encoding=plan_encoding(options.typed, schema))
