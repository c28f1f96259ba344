"""`replication-offset-checkpoint` in each log directory: the high watermark of each partition.

The broker writes the file on a schedule and at shutdown. It reads the file when a partition is opened; readers without
a broker (Spark's `path` mode) read it too. The stored high watermark may lag behind the actual one, but is never ahead
of it: a replica that starts with an old value learns the rest from its leader, or from its followers if it leads. A
partition without a state since the start keeps its entry. The entry of a partition that has moved to another directory
is dropped. The entry of a deleted partition is removed before the name can be used again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping

from sparklog.base.fs import Fs
from sparklog.base.ids import TopicPartition
from sparklog.log.directory.checkpoints import HIGH_WATERMARKS, CorruptCheckpoint, OffsetCheckpoint

logger = logging.getLogger(__name__)
HighWatermarks = dict[str, dict[TopicPartition, int]]
"""High watermarks of partitions, by log directory."""


class HighWatermarkFiles:
    """The checkpoints of one broker. All methods block; they may be called from any thread."""

    def __init__(self, fs: Fs, is_here: Callable[[TopicPartition], bool]) -> None:
        """is_here: whether this broker has a log of the partition, even an offline one."""
        self._fs = fs
        self._is_here = is_here
        self._lock = threading.Lock()
        self._written: HighWatermarks = {}

    def find(self, folder: str, name: TopicPartition) -> int | None:
        """Return the stored high watermark of a partition in a log directory, or None."""
        with self._lock:
            return self._offsets_in(folder).get(name)

    def write(self, found: Mapping[str, Mapping[TopicPartition, int]]) -> None:
        """Write and flush one file per directory, unless it is up to date."""
        with self._lock:
            homes = {name: folder for folder, offsets in found.items() for name in offsets}
            for folder, offsets in found.items():
                kept = {
                    name: offset
                    for name, offset in self._offsets_in(folder).items()
                    if self._is_here(name) and homes.get(name, folder) == folder
                }
                self._write(folder, {**kept, **offsets})

    def forget(self, names: Collection[TopicPartition]) -> None:
        """Remove the entries of deleted partitions."""
        with self._lock:
            for folder, offsets in tuple(self._written.items()):
                if not offsets.keys().isdisjoint(names):
                    self._write(folder, {each: offset for each, offset in offsets.items() if each not in names})

    def _offsets_in(self, folder: str) -> dict[TopicPartition, int]:
        if folder not in self._written:
            try:
                self._written[folder] = self._file(folder).read()
            except (CorruptCheckpoint, OSError) as error:
                logger.error("high watermarks in %s could not be read: %s", folder, error)
                self._written[folder] = {}
        return self._written[folder]

    def _write(self, folder: str, offsets: dict[TopicPartition, int]) -> None:
        if self._written.get(folder) == offsets:
            return
        try:
            self._file(folder).write(offsets)
            self._written[folder] = offsets
        except OSError as error:
            logger.error("high watermarks in %s could not be written: %s", folder, error)

    def _file(self, folder: str) -> OffsetCheckpoint:
        return OffsetCheckpoint(self._fs, f"{folder}/{HIGH_WATERMARKS}")
