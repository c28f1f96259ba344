"""What is done for logs while a broker runs: methods for a schedule, each of which may run in any thread.

    flush          what is due, and segments that have been closed
    checkpoints    recovery points, log start offsets and cleaned offsets, of all logs of a directory in one file each:
                   on the schedule, and at once when a log is about to change what they promise
    retention      old segments go, and silent producers are forgotten
    delete         the files of what has gone, once file.delete.delay.ms has passed

A log or a directory that fails meanwhile is offline, which has been said; the others are looked after all the same.
What a full disk has no room for is written when its time comes again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import KafkaStorageError
from sparklog.base.ids import TopicPartition
from sparklog.log.directory.directories import LogDirectories


class BackgroundTasks:
    """Looks after the logs of a broker."""

    def __init__(self, directories: LogDirectories, config: BrokerConfig) -> None:
        self._directories = directories
        self._config = config

    def flush_due(self, now_ms: int) -> None:
        """Flush the logs whose flush.ms has passed, and closed segments. now_ms: of the monotonic clock.

        Recovery points that closed segments have moved, and those of new logs, are written down at once.
        """
        moved = set()
        for log in self._directories:
            with contextlib.suppress(KafkaStorageError):  # it has been said, and its directory is offline
                if log.flush_if_due(now_ms):
                    moved.add(self._directories.directory_of(log))
        with contextlib.suppress(KafkaStorageError):  # no room yet
            self._directories.list_new(moved)

    def look_for_room(self) -> None:
        """Go on with appends where there is room again, and stop them where there is not."""
        for directory in self._directories.live():
            with self._directories.guard(directory):
                directory.room.look()

    def checkpoint_recovery_points(self) -> None:
        """Write them down, of all directories that work."""
        with contextlib.suppress(KafkaStorageError):
            self._directories.list_new(self._directories.live())

    def checkpoint_log_starts(self) -> None:
        """Write them down, and what topics go by, in all directories that work."""
        for directory in self._directories.live():
            with contextlib.suppress(KafkaStorageError), self._directories.guard(directory):
                directory.write_log_starts(partial(self._directories.logs_in, directory.path))
                directory.write_configs()

    def apply_retention(
        self,
        now_ms: int,
        high_watermark: Callable[[TopicPartition], int | None] | None = None,
        is_led: Callable[[TopicPartition], bool] = lambda _: True,
    ) -> int:
        """Let go of the segments that retention gives up, and say how many.

        now_ms: of the wall clock. high_watermark: nothing at or above it goes; where it is None, or answers None, the
        log end offset takes its place. is_led: of others, only what lies below the log start goes.
        """
        count = 0
        for log in self._directories:
            limit = high_watermark(log.partition) if high_watermark else None
            with contextlib.suppress(KafkaStorageError):
                count += log.delete_old_segments(now_ms, high_watermark=limit, is_led=is_led(log.partition))
        return count

    def expire_producers(self, now_ms: int) -> int:
        """Forget the producers that were silent for producer.id.expiration.ms, and say how many. now_ms: wall clock."""
        after_ms = self._config.producer_id_expiration_ms
        return sum(log.expire_producers(now_ms, after_ms) for log in self._directories)

    def delete_expired(self, now_ms: int) -> int:
        """Remove the files of segments and partitions whose delay has passed, and say of how many.

        now_ms: of the monotonic clock.
        """
        count = 0
        for log in self._directories:
            with contextlib.suppress(KafkaStorageError):
                count += log.delete_expired(now_ms)
        for directory in self._directories.live():
            with self._directories.guard(directory):
                count += directory.remove_expired(now_ms)
        return count
