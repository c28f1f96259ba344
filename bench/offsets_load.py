"""Loading a partition of __consumer_offsets, as its coordinator does:  python -m bench.offsets_load [--help]

    everything      the whole log is replayed: there is no snapshot
    snapshot        the newest record of each key is replayed, and the tail after the snapshot (group/loader.py)

The kernels with which clients encode write the log: --commits commits for --keys keys, --batch of them in a record
batch, as a consumer of that many partitions writes them. The snapshot ends --tail commits before the end of the log.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.base.clock import SystemClock
from sparklog.base.config import BrokerConfig
from sparklog.base.fs import LocalFs
from sparklog.base.ids import TopicPartition
from sparklog.base.schemas import write_key
from sparklog.base.topic_config import TopicConfig
from sparklog.group.loader import load
from sparklog.group.shard import GroupShard
from sparklog.log.log import Log
from sparklog.offsets_topic.schemas import OFFSETS_TOPIC
from sparklog.records.arrow import encode_all
from sparklog.spark.offsets.read import PartitionSlice
from sparklog.spark.offsets.snapshots import batches_of
from sparklog.spark.offsets.topic import ReplayTask, read_changes

PARTITION = TopicPartition("__consumer_offsets", 0)
STEP = 100_000
APPENDED = 1_000  # record batches at once
COMMIT_BYTES = 90
PARTITIONS_OF_A_GROUP = 10
_VALUE = np.dtype(
    [("version", ">i2"), ("offset", ">i8"), ("epoch", ">i4"), ("metadata", "u1"), ("time", ">i8"), ("tags", "u1")]
)
"""Value of a commit: version 4, with empty metadata and no topic id."""


class NoTopics(dict[str, Any]):
    """Topics of a shard that replays only commits, which look up no topic."""


def main() -> None:
    """Write, load, make the snapshot, load again."""
    options = _options()
    with tempfile.TemporaryDirectory() as parent:
        started = time.perf_counter()
        log = write_commits(Path(parent), options.commits, options.keys, options.batch)
        print(f"{options.commits:,} commits for {options.keys:,} keys, {log.size_bytes / 1e6:,.0f} MB, "
              f"written in {time.perf_counter() - started:.1f} s")  # fmt: skip
        _measure("everything", log)
        started = time.perf_counter()
        size = make_snapshot(log, log.log_end_offset - options.tail)
        print(f"the snapshot has {size:,} bytes and was made in {time.perf_counter() - started:.1f} s, without Spark")
        _measure("snapshot", log)


def write_commits(log_dir: Path, count: int, keys: int, in_batch: int) -> Log:
    """Write commits to a partition of the offsets topic in a log directory; return the open log."""
    config = TopicConfig(segment_bytes=100 << 20)
    log = Log.open(LocalFs(), str(log_dir / str(PARTITION)), config, SystemClock(), clean=True)
    for batch in commits(count, keys):
        batches = encode_all(batch, max_batch_bytes=in_batch * COMMIT_BYTES, default_timestamp_ms=0)
        for at in range(0, len(batches), APPENDED):
            log.append(bytearray().join(batches[at : at + APPENDED]), leader_epoch=0)
    return log


def commits(count: int, keys: int) -> Iterator[pa.RecordBatch]:
    """Yield commits for the keys in turn, as Arrow columns."""
    written = pa.array(
        [
            write_key(1, {"group": f"group-{number // PARTITIONS_OF_A_GROUP:06}", "topic": "orders",
                          "partition": number % PARTITIONS_OF_A_GROUP}, OFFSETS_TOPIC)
            for number in range(keys)
        ],
        pa.binary(),
    )  # fmt: skip
    for first in range(0, count, STEP):
        numbers = np.arange(first, min(first + STEP, count))
        values = np.zeros(len(numbers), _VALUE)
        values["version"], values["epoch"], values["metadata"] = 4, -1, 1
        values["offset"] = values["time"] = numbers
        value = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(_VALUE.itemsize), len(numbers), [None, pa.py_buffer(values.tobytes())]
        )
        yield pa.record_batch(
            {"key": written.take(pa.array(numbers % keys)), "value": value.cast(pa.binary()),
             "timestamp": pa.array(numbers, pa.timestamp("ms", "UTC"))}
        )  # fmt: skip


def make_snapshot(log: Log, end_offset: int) -> int:
    """Make the snapshot that the job makes in Spark, in this process; return its size in bytes."""
    whole = PartitionSlice(partition=PARTITION, offset_from=0, offset_to=end_offset, folder=log.folder)
    newest: dict[bytes, int] = {}
    rows: pa.Table | None = None
    for batch in read_changes(ReplayTask(slice=whole, history_from=0)):
        table = pa.Table.from_batches([batch])
        rows = table if rows is None else pa.concat_tables([rows, table])
        newest |= dict(zip(batch["key"].to_pylist(), batch["log_offset"].to_pylist(), strict=True))
        rows = rows.filter(pc.is_in(rows["log_offset"], value_set=pa.array(sorted(newest.values()))))
    assert rows is not None
    writer = log.offset_snapshots.begin(end_offset)
    for data in batches_of(rows.sort_by("log_offset").combine_chunks().to_batches()):
        log.offset_snapshots.write(writer, data)
    return log.offset_snapshots.install(writer)


def _new_shard() -> GroupShard:
    return GroupShard(BrokerConfig(), NoTopics(), uuid4)  # type: ignore[arg-type]


def _measure(name: str, log: Log) -> None:
    started, cpu = time.perf_counter(), time.process_time()
    shard, done = load(log, log.log_end_offset, _new_shard, lambda: True)
    took, cpu = time.perf_counter() - started, time.process_time() - cpu
    print(f"{name:<12}{took:8.2f} s  {cpu:8.2f} s of CPU   {len(shard.groups):,} groups, from {done}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=5_000_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=10, help="commits in a record batch")
    parser.add_argument("--tail", type=int, default=20_000, help="commits after the snapshot")
    return parser.parse_args()


if __name__ == "__main__":
    main()
