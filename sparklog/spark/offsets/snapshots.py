"""Snapshots of the offsets topic that its coordinators load. Each task makes the snapshots of some partitions.

Records of a partition go to its leader in offset order, encoded and sent as they come: a task holds a few thousand of
them at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparklog.base.errors import SparklogError
from sparklog.base.ids import TopicPartition
from sparklog.records.arrow import encode_all
from sparklog.records.batch import Codec
from sparklog.spark.shipping import task_function

RESULTS = "partition int, size_bytes bigint, error string"
BATCH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotTarget:
    """A snapshot to make."""

    partition: TopicPartition
    leader_epoch: int
    end_offset: int


def install(newest: DataFrame, targets: Iterable[SnapshotTarget], client: Mapping[str, Any]) -> dict[int, int | str]:
    """Make the snapshots from the newest records; return each partition's size in bytes, or its error."""
    wanted = {target.partition.partition: target for target in targets}
    if not wanted:
        return {}
    options = dict(client)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, parts in groupby(chain.from_iterable(map(_by_partition, batches)), key=lambda each: each[0]):
            size, error = _install_snapshot(wanted[number], (part for _, part in parts), options)
            yield pa.record_batch([pa.array([number], pa.int32()), pa.array([size]), pa.array([error], pa.string())],
                                  ["partition", "size_bytes", "error"])  # fmt: skip

    rows = newest.filter(F.col("log_partition").isin(*wanted)).repartition("log_partition")
    ordered = rows.sortWithinPartitions("log_partition", "log_offset")
    done = {
        row.partition: row.error or row.size_bytes for row in ordered.mapInArrow(task_function(run), RESULTS).collect()
    }
    for number in wanted.keys() - done.keys():  # partitions without any record left
        size, error = _install_snapshot(wanted[number], iter(()), options)
        done[number] = error or size
    return done


def batches_of(rows: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield encoded record batches of the newest records of a partition, which come in offset order."""
    for batch in rows:
        if batch.num_rows:
            columns = {"offset": "log_offset", "timestamp": "log_time", "key": "key", "value": "value"}
            table = pa.table({name: batch.column(column) for name, column in columns.items()})
            encoded = encode_all(
                table, max_batch_bytes=BATCH_BYTES, default_timestamp_ms=0, codec=Codec.LZ4, keep_offsets=True
            )
            yield from map(bytes, encoded)


def _install_snapshot(
    target: SnapshotTarget, rows: Iterator[pa.RecordBatch], client: Mapping[str, Any]
) -> tuple[int, str | None]:
    from sparklog.client import Maintenance  # loads gRPC: only where it is used

    try:
        with Maintenance(**client) as maintenance:
            size = maintenance.install_snapshot(
                target.partition, target.leader_epoch, target.end_offset, batches_of(rows)
            )
            return size, None
    except SparklogError as error:
        return 0, f"{type(error).__name__}: {error}"
    finally:
        for _ in rows:  # skip unread rows: the next partition's rows come after them
            pass


def _by_partition(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the parts of a batch by partition; the batch is sorted by partition."""
    for number in pc.unique(batch.column("log_partition")).to_pylist():
        yield number, batch.filter(pc.equal(batch.column("log_partition"), number))
