"""Topics in a log directory of sparklog or Apache Kafka, without a broker.

``path`` names a log directory (every ``<topic>-<n>`` in it) or the folder of a single partition, local or as a URI.
`sparklog.arrow.folders` says which records are read.

    FolderLookup       the lookup of a log directory
    open_lookup        the lookup of a read: of the folder for the option `path`, else of the broker
    describe_folders   partitions of a topic, described as a broker would describe them
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterable

from sparklog.arrow.filesystems import LogDirOwner, LogReaders, open_folder, open_reader
from sparklog.arrow.folders import PartitionFolder, ReadableOffsets, partition_folders
from sparklog.arrow.options import IsolationLevel
from sparklog.base.errors import ConfigError, CorruptRecord, KafkaError, OffsetOutOfRange
from sparklog.base.ids import INTERNAL_TOPICS, TopicPartition, encode_id
from sparklog.log.description import LogDescription, SegmentDescription
from sparklog.log.directory.checkpoints import (
    COMPACTED,
    CorruptCheckpoint,
    read_offsets,
    read_topic_id,
)
from sparklog.log.reader import LogReader
from sparklog.records.aborted import AbortedRanges
from sparklog.spark.source.offsets import ArchiveName, Lookup, Offsets, PartitionRange, check_exist
from sparklog.spark.source.options import (
    AllTopics,
    Assign,
    ReadOptions,
    Selection,
    Subscribe,
    SubscribePattern,
)


def belongs_to(path: str, cluster_id: str, broker_id: int) -> bool:
    """Return whether the folder at `path`, as seen from this machine, is the log directory of that broker."""
    return LogDirOwner.of(path) == (cluster_id, broker_id)


class FolderLookup:
    """Lookup that answers from a log directory. Implements Lookup."""

    def __init__(self, path: str, *, is_committed_only: bool) -> None:
        self._path = path
        self._is_committed_only = is_committed_only
        self._folders: dict[TopicPartition, PartitionFolder] = {}
        self._is_fresh = False
        """Whether the directory was listed after the last call of `bounds`."""

    @classmethod
    def open(cls, path: str, isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED) -> FolderLookup:
        """Return a lookup of the partitions at `path`, a path or URI as in the option.

        Raises ConfigError if there are none.
        """
        lookup = cls(path, is_committed_only=isolation_level is IsolationLevel.READ_COMMITTED)
        lookup._list()
        return lookup

    def topics(self, selection: Selection) -> list[str]:
        return sorted({partition.topic for partition in self._selected(selection)})

    def bounds(self, selection: Selection) -> dict[TopicPartition, ReadableOffsets]:
        """Return the bounds of the selected partitions, with those that have appeared since the last call."""
        if not self._is_fresh:
            with contextlib.suppress(ConfigError):  # all folders are gone: the bounds of the known partitions show it
                self._list()
        self._is_fresh = False
        readers = LogReaders()
        return {
            partition: self._folders[partition].bounds(readers.open(self.folder(partition)))
            for partition in self._selected(selection)
        }

    def offsets_for_times(self, timestamps_ms: Offsets) -> dict[TopicPartition, int | None]:
        readers = LogReaders()
        return {
            partition: self._folders[partition].offset_for_timestamp(readers.open(self.folder(partition)), timestamp_ms)
            for partition, timestamp_ms in timestamps_ms.items()
        }

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return nothing: files have no groups."""
        return {}

    def commit(self, offsets: Offsets) -> None:
        """Do nothing: files have no groups."""

    def folder(self, partition: TopicPartition) -> str:
        """Return the location of the partition's folder."""
        return self._folders[partition].location

    def segments(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[SegmentDescription, ...]]:
        """Return nothing: all folders are visible."""
        return {}

    def aborted(self, whole: PartitionRange) -> AbortedRanges:
        partition, offset_from, offset_to = whole
        return self._folders[partition].aborted(open_reader(self.folder(partition)), offset_from, offset_to)

    def archives(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ArchiveName]:
        """Return unknown locations: files do not name the archive."""
        return dict.fromkeys(partitions, ArchiveName("", ""))

    def close(self) -> None:
        """Do nothing: no file is held open."""

    def _list(self) -> None:
        """Add the partitions that are new. Those that are gone stay, so that a query notices what it loses.

        Raises ConfigError if there are none.
        """
        for partition, location in partition_folders(self._path).items():
            if partition not in self._folders:
                self._folders[partition] = PartitionFolder(
                    partition, location, is_committed_only=self._is_committed_only
                )
        self._is_fresh = True

    def _selected(self, selection: Selection) -> list[TopicPartition]:
        there = sorted(self._folders)
        match selection:
            case AllTopics():
                # a single folder may be of any topic; a whole directory is read without internal topics
                return there if len(there) == 1 else [each for each in there if each.topic not in INTERNAL_TOPICS]
            case SubscribePattern():
                return [each for each in there if each.topic not in INTERNAL_TOPICS and selection.matches(each.topic)]
            case Subscribe(names):
                check_exist(set(names), {each.topic for each in there}, "in the log directory")
                return [each for each in there if each.topic in names]
            case Assign(partitions):
                check_exist(partitions, set(there), "in the log directory")
                return sorted(partitions)


def open_lookup(options: ReadOptions) -> Lookup:
    """Return the lookup that the options ask for; the caller closes it."""
    if options.path is not None:
        return FolderLookup.open(options.path, options.isolation_level)
    from sparklog.spark.broker import BrokerLookup  # loads the gRPC client, which tasks that read files do not need

    assert options.broker is not None  # parse_read_options: a path or a broker
    return BrokerLookup(options.broker, options.read_mode, options.isolation_level)


def describe_folders(path: str, topic: str) -> dict[TopicPartition, LogDescription | KafkaError]:
    """Return descriptions of the partitions of `topic` in the log directory at `path`.

    `path` may also be the folder of a single partition. The logs end at the checkpointed high watermark; a log whose
    readable records end below it is an error. Raises ConfigError and OSError.
    """
    lookup = FolderLookup.open(path)
    found: dict[TopicPartition, LogDescription | KafkaError] = {}
    for partition, bounds in lookup.bounds(Subscribe((topic,))).items():
        if error := _lost_end(open_reader(lookup.folder(partition))):
            found[partition] = error
            continue
        fs, folder = open_folder(lookup.folder(partition))
        try:
            topic_id = read_topic_id(fs, folder)
            cleaned = read_offsets(fs, f"{posixpath.dirname(folder)}/{COMPACTED}").get(partition, 0)
        except CorruptCheckpoint:
            topic_id, cleaned = None, bounds.high_watermark  # compaction may have removed anything
        found[partition] = LogDescription(
            partition=partition, topic_id=encode_id(topic_id) if topic_id else "", folder=lookup.folder(partition),
            log_start_offset=bounds.log_start, high_watermark=bounds.high_watermark,
            last_stable_offset=bounds.end, log_end_offset=bounds.high_watermark, cleaned_offset=cleaned,
        )  # fmt: skip
    return found


def _lost_end(reader: LogReader) -> KafkaError | None:
    """Return the error of a log whose readable records end below the checkpointed high watermark."""
    high_watermark = reader.high_watermark() or 0  # read before the end, which may grow meanwhile
    try:
        end = reader.end_offset()
    except OffsetOutOfRange:
        return None  # no segment yet
    if end >= high_watermark:
        return None
    return CorruptRecord(f"the log can be read up to offset {end}, below its high watermark {high_watermark}")
