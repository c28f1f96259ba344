"""Topics as Arrow tables, read from the files of a log directory: no broker, no Spark.

    read_table      records of a topic as a pyarrow.Table
    record_batches  the same as a pyarrow.RecordBatchReader, which DuckDB, polars and pandas read in bounded memory
    scan_polars     the same as a polars.LazyFrame
    …_format        the encodings of keys and values

    folders ─▶ tables (offsets to read) ─▶ segments (chunks of files to records) ─▶ columns (records to the table)
                                                                                 ─▶ typed (typed keys and values)

The Spark source uses the same modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparklog.base.lazy import lazy

__all__ = [
    "avro_format",
    "json_format",
    "protobuf_format",
    "read_table",
    "record_batches",
    "registry_format",
    "scan_polars",
    "string_format",
]

_MODULES = {
    "read_table": "sparklog.arrow.tables",
    "record_batches": "sparklog.arrow.tables",
    "scan_polars": "sparklog.arrow.lazy_frames",
    **dict.fromkeys(
        ("avro_format", "json_format", "protobuf_format", "registry_format", "string_format"), "sparklog.arrow.formats"
    ),
}

if TYPE_CHECKING:
    from sparklog.arrow.formats import avro_format, json_format, protobuf_format, registry_format, string_format
    from sparklog.arrow.lazy_frames import scan_polars
    from sparklog.arrow.tables import read_table, record_batches
else:
    # Lazy imports, because Spark's workers import this package too.
    __getattr__, __dir__ = lazy(__name__, _MODULES, __all__)
