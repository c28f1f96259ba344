"""Topics as tables: the Spark data source `sparklog`, batch and streaming, reading and writing.

    source/      the data source, as drawn below
    history/     archives in Delta tables, and reads of archive and log as one
    compaction/  offsets/  audit/    the work of jobs in Spark tasks
    beside them  the session and its jars, and lookups of topics at a broker or in a folder

    options ─▶ source ─▶ offsets (start and end of a scan) ─▶ plan (which bytes, how many tasks) ─▶ read | stream
                     └─▶ write

`plan` and `options` are pure. Tasks that read segments from files load only Arrow and the record kernels; only `broker`
and `write` load the gRPC client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparklog.base.lazy import lazy

__all__ = [
    "Counts",
    "Scan",
    "SourceLag",
    "SparklogDataSource",
    "TopicTable",
    "count",
    "delta_jars",
    "explain",
    "local_session",
    "progress",
    "tables",
]

_MODULES = {
    "Counts": "sparklog.spark.counting",
    "Scan": "sparklog.spark.explain",
    "SourceLag": "sparklog.spark.stream_progress",
    "SparklogDataSource": "sparklog.spark.source.source",
    "TopicTable": "sparklog.spark.topic_tables",
    "count": "sparklog.spark.counting",
    "delta_jars": "sparklog.spark.jars",
    "explain": "sparklog.spark.explain",
    "local_session": "sparklog.spark.session",
    "progress": "sparklog.spark.stream_progress",
    "tables": "sparklog.spark.topic_tables",
}

if TYPE_CHECKING:
    from sparklog.spark import explain
    from sparklog.spark.counting import Counts, count
    from sparklog.spark.explain import Scan
    from sparklog.spark.jars import delta_jars
    from sparklog.spark.session import local_session
    from sparklog.spark.source.source import SparklogDataSource
    from sparklog.spark.stream_progress import SourceLag, progress
    from sparklog.spark.topic_tables import TopicTable, tables
else:
    # Workers that read segments need neither the gRPC client nor what starts a session.
    __getattr__, __dir__ = lazy(__name__, _MODULES, __all__)
