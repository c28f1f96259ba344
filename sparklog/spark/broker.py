"""Topics of a running broker: where they begin and end, where their files are, and their records over gRPC.

Only this module of the reading side loads the gRPC client. Every call ends within `ConnectionOptions.timeout_ms`, the
clients' timeout. The timeout for a single broker is shorter: if a broker hangs, its partitions soon have other leaders,
and there must be time to ask those.

A broker's files are read if this machine sees its log directory: the same path holds a ``meta.properties`` that names
the same cluster and the same broker. They are read up to the high watermark, or last stable offset, that the broker
reported.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.arrow.filesystems import open_reader
from sparklog.arrow.folders import ReadableOffsets
from sparklog.arrow.options import IsolationLevel
from sparklog.base.config_keys import MAX_LONG
from sparklog.base.errors import (
    ConfigError,
    KafkaError,
    LogTruncation,
    OffsetOutOfRange,
    RequestTimedOut,
    RetriableError,
    UnknownTopicOrPartition,
)
from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Consumer, Maintenance
from sparklog.client.offsets import ListedOffset, OffsetSpec
from sparklog.log.description import LogDescription, SegmentDescription
from sparklog.records.aborted import NONE_ABORTED, AbortedRanges
from sparklog.spark.folders import belongs_to
from sparklog.spark.source.offsets import ArchiveName, Offsets, PartitionRange, check_exist, report_losses
from sparklog.spark.source.options import (
    AllTopics,
    Assign,
    ConnectionOptions,
    ReadMode,
    ReadOptions,
    Selection,
    Subscribe,
    SubscribePattern,
)

FETCH_BYTES = 8 << 20
"""Bytes per fetch: some ten thousand records of the usual size."""
ANSWER_MS = 10_000
"""Timeout of one broker's answer, except to fetches. Twice that is less than `ELECTION_MS`: the broker that is asked
for the leader may hang, and then the leader too.
"""
FETCH_MS = 30_000
"""Timeout of one broker's answer to a fetch, as in every consumer: the answer holds megabytes."""
ELECTION_MS = 30_000
"""How long a partition may have no leader before a read fails. A dead broker is detected in less time."""
ELECTION_PAUSE_S = 0.1


class BrokerLookup:
    """Lookup that asks a broker about its topics. Implements Lookup."""

    def __init__(self, broker: ConnectionOptions, read_mode: ReadMode, isolation_level: IsolationLevel) -> None:
        self._client: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap_servers,
            "request_timeout_ms": min(broker.timeout_ms, ANSWER_MS),
            "default_api_timeout_ms": broker.timeout_ms,
            **broker.security,
        }
        self._admin = Admin(**self._client)
        self._maintenance: Maintenance | None = None
        self._timeout_ms = broker.timeout_ms
        self._group_id = broker.group_id
        self._read_mode = read_mode
        self._isolation_level = isolation_level
        self._placed: dict[TopicPartition, tuple[int, ...]] = {}
        """Leader, then in-sync replicas, of each partition in the last metadata: they have all committed records."""
        self._epochs: dict[TopicPartition, int] = {}
        """Leader epochs in which the leader is known to have the current high watermark."""
        self._folders: dict[tuple[TopicPartition, int], str] | None = None
        """Folders by partition and broker, of brokers whose log directory this machine sees."""
        self._is_fresh = False
        """Whether `_folders` was filled after the last call of `bounds`."""

    def topics(self, selection: Selection) -> list[str]:
        match selection:
            case Subscribe(names):
                return list(names)
            case Assign(partitions):
                return sorted({partition.topic for partition in partitions})
            case SubscribePattern():
                return [topic.name for topic in self._admin.list_topics() if selection.matches(topic.name)]
            case AllTopics():
                return [topic.name for topic in self._admin.list_topics()]

    def bounds(self, selection: Selection) -> dict[TopicPartition, ReadableOffsets]:
        """Return the bounds of the selected partitions; wait up to `ELECTION_MS` for a partition without a leader.

        Raises the partition's error after that time. If the selection names its topics, UnknownTopicOrPartition is
        raised at once; otherwise a topic was deleted after its name was listed, and the next list lacks it.
        """
        is_named = isinstance(selection, Subscribe | Assign)
        deadline = time.monotonic() + min(self._timeout_ms, ELECTION_MS) / 1000
        self._is_fresh = False
        while True:
            try:
                return self._bounds(selection)
            except RetriableError as error:
                if time.monotonic() >= deadline or (is_named and isinstance(error, UnknownTopicOrPartition)):
                    raise
            time.sleep(ELECTION_PAUSE_S)

    def _bounds(self, selection: Selection) -> dict[TopicPartition, ReadableOffsets]:
        found, epochs = {}, {}
        for topic in self._admin.describe_topics(self.topics(selection)):
            for part in topic.partitions:
                partition = TopicPartition(topic.name, part.partition)
                if isinstance(selection, Assign) and partition not in selection.partitions:
                    continue
                if part.error is not None:
                    raise part.error
                self._placed[partition] = (part.leader, *part.in_sync_replicas)
                epochs[partition] = part.leader_epoch
                found[partition] = ReadableOffsets(part.log_start_offset, part.high_watermark)
        if isinstance(selection, Assign):
            check_exist(selection.partitions, found.keys(), "of the topics")
        # The high watermark of a leader that has just been elected may lag. ListOffsets waits until it is current.
        new = [partition for partition, epoch in epochs.items() if self._epochs.get(partition) != epoch]
        for partition, end in self._admin.list_offsets(dict.fromkeys(new, "latest")).items() if new else ():
            start, high_watermark, _ = found[partition]
            found[partition] = ReadableOffsets(start, max(high_watermark, end.offset))
        self._epochs.update(epochs)
        return self._stable(found) if self._isolation_level is IsolationLevel.READ_COMMITTED else found

    def _stable(self, bounds: Mapping[TopicPartition, ReadableOffsets]) -> dict[TopicPartition, ReadableOffsets]:
        """Return the bounds with the first offsets whose transactions are open, which only leaders know."""
        found = {}
        for partition, latest in self._list_offsets(dict.fromkeys(bounds, "latest")).items():
            start, high_watermark, _ = bounds[partition]
            unstable = latest.offset if latest.offset < high_watermark else MAX_LONG
            found[partition] = ReadableOffsets(start, max(high_watermark, latest.offset), unstable)
        return found

    def _list_offsets(self, wanted: Mapping[TopicPartition, OffsetSpec]) -> dict[TopicPartition, ListedOffset]:
        return self._admin.list_offsets(wanted, isolation_level=self._isolation_level.value)

    def offsets_for_times(self, timestamps_ms: Offsets) -> dict[TopicPartition, int | None]:
        found = self._list_offsets(timestamps_ms)
        return {partition: each.offset if each.offset >= 0 else None for partition, each in found.items()}

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        if self._group_id is None:
            return {}
        found = self._admin.list_group_offsets(self._group_id, partitions)
        return {partition: each.offset for partition, each in found.items() if each.offset >= 0}

    def commit(self, offsets: Offsets) -> None:
        """Commit a query's progress to the options' consumer group; do nothing if they name none.

        Raises UnknownMemberId while the group has members.
        """
        if self._group_id is not None:
            self._admin.alter_group_offsets(self._group_id, offsets)

    def folder(self, partition: TopicPartition) -> str | None:
        """Return the leader's folder, else an in-sync replica's; None if this machine sees none, or for readMode fetch.

        A replica that lags, or a deposed leader, may have other records. Raises ConfigError if readMode is segments and
        this machine sees no such folder.
        """
        if self._read_mode is ReadMode.FETCH:
            return None
        if partition not in self._placed:
            self.bounds(Assign(frozenset({partition})))
        able = [(partition, broker) for broker in self._placed[partition]]
        folder = self._find_folder(able) if self._folders is not None and able[0] in self._folders else None
        has_moved = folder is not None and not os.path.isdir(folder)  # the replica, to another log directory
        if has_moved or (folder is None and not self._is_fresh):  # once for all partitions of a plan that have none
            self._folders, self._is_fresh = self._visible_folders(), True
        if folder is None or has_moved:
            folder = self._find_folder(able)
        if folder is None and self._read_mode is ReadMode.SEGMENTS:
            raise ConfigError(
                f"readMode = segments, but no broker's log directory with {partition} can be seen from here; "
                "auto and fetch read through the broker"
            )
        return folder

    def _find_folder(self, able: Iterable[tuple[TopicPartition, int]]) -> str | None:
        folders = self._folders or {}
        return next((folders[each] for each in able if each in folders), None)

    def aborted(self, whole: PartitionRange) -> AbortedRanges:
        folder = self.folder(whole.partition)
        if folder is None or self._isolation_level is IsolationLevel.READ_UNCOMMITTED:
            return NONE_ABORTED
        found = open_reader(folder).aborted_transactions(whole.offset_from, whole.offset_to)
        return AbortedRanges(each[:3] for each in found)

    def segments(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[SegmentDescription, ...]]:
        return {partition: log.segments for partition, log in self._describe(partitions).items()}

    def archives(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ArchiveName]:
        return {
            partition: ArchiveName(log.config.retention_archive, log.topic_id)
            for partition, log in self._describe(partitions).items()
        }

    def _describe(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogDescription]:
        """Return the leaders' logs of the partitions. Raises the error of one that cannot be described."""
        wanted = [*partitions]
        if not wanted:
            return {}
        if self._maintenance is None:
            self._maintenance = Maintenance(**self._client)
        logs = {}
        for partition, log in self._maintenance.describe_logs(wanted).items():
            if isinstance(log, KafkaError):
                raise log
            logs[partition] = log
        return logs

    def close(self) -> None:
        self._admin.close()
        if self._maintenance is not None:
            self._maintenance.close()

    def _visible_folders(self) -> dict[tuple[TopicPartition, int], str]:
        cluster = self._admin.describe_cluster().cluster_id
        return {
            (TopicPartition(part.topic, part.partition), broker): f"{log_dir.path}/{part.topic}-{part.partition}"
            for broker, log_dirs in self._admin.describe_log_dirs().items()
            for log_dir in log_dirs
            if log_dir.error is None and belongs_to(log_dir.path, cluster, broker)
            for part in log_dir.partitions
            if not part.is_future
        }


def fetch_range(whole: PartitionRange, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range, fetched from the broker.

    Raises DataLost if records are gone and `failOnDataLoss` is set, RequestTimedOut if the broker returns nothing in
    time.
    """
    broker = options.broker
    assert broker is not None  # ranges to fetch come from a broker
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        request_timeout_ms=min(broker.timeout_ms, FETCH_MS),
        default_api_timeout_ms=broker.timeout_ms,
        max_partition_fetch_bytes=FETCH_BYTES,
        prefetch_max_bytes=2 * FETCH_BYTES,
        auto_offset_reset="none",
        isolation_level=options.isolation_level.value,
        **broker.security,
    ) as consumer:
        partition, offset, end = whole
        while offset < end:
            consumer.assign([partition])
            consumer.seek(partition, offset)
            try:
                yield from _poll_until(consumer, partition, end, broker.timeout_ms)
                return
            except LogTruncation as error:  # only records already read are lost: go on after them
                report_losses([str(error)], fail=options.fail_on_data_loss)
                offset = consumer.position(partition)
            except OffsetOutOfRange:
                offset = _skip_loss(consumer, partition, consumer.position(partition), end, options)


def _poll_until(consumer: Consumer, partition: TopicPartition, end: int, timeout_ms: int) -> Iterator[pa.RecordBatch]:
    """Yield the records of the consumer's one partition, up to `end`."""
    while consumer.position(partition) < end:
        before = consumer.position(partition)
        table = consumer.poll_arrow(timeout_ms)
        if consumer.position(partition) == before:
            raise RequestTimedOut(f"{partition}: nothing came from offset {before} on within {timeout_ms} ms")
        if table.num_rows and table["offset"][-1].as_py() >= end:
            table = table.filter(pc.less(table["offset"], end))
        yield from table.to_batches()


def _skip_loss(consumer: Consumer, partition: TopicPartition, offset: int, end: int, options: ReadOptions) -> int:
    """Report the loss at an offset that is out of range; return the offset at which to continue."""
    log_start = consumer.beginning_offsets([partition])[partition]
    go_on = min(log_start, end) if log_start > offset else end
    report_losses([f"{partition}: offsets {offset} to {go_on - 1} are gone"], fail=options.fail_on_data_loss)
    return go_on
