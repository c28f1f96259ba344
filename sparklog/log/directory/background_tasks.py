"""Background tasks for the logs of a running broker: methods for a schedule, each of which may run in any thread.

    flush          flush the logs that are due, and closed segments
    checkpoints    write recovery points and log start offsets, one file each for all logs of a directory, on schedule.
                   Operations that rely on new values write them and the cleaned offsets at once
    retention      delete old segments, and forget silent producers
    delete         remove the files of deleted segments and partitions after file.delete.delay.ms

A log or directory that fails during a task goes offline, and the failure is logged; the task continues with the others.
If a full disk has no room for a file, the next run writes it.
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
    """The background tasks for a broker's logs."""

    def __init__(self, directories: LogDirectories, config: BrokerConfig) -> None:
        self._directories = directories
        self._config = config

    def flush_due(self, now_ms: int) -> None:
        """Flush the logs whose flush.ms has passed, and closed segments. now_ms: of the monotonic clock.

        Checkpoints the recovery points at once in directories with flushed closed segments or new logs.
        """
        moved = set()
        for log in self._directories:
            with contextlib.suppress(KafkaStorageError):  # already logged, and the directory is offline
                if log.flush_if_due(now_ms):
                    moved.add(self._directories.directory_of(log))
        with contextlib.suppress(KafkaStorageError):  # no room yet
            self._directories.checkpoint_new_logs(moved)

    def check_free_space(self) -> None:
        """Check the free space of each directory: resume appends if there is room, refuse them if not."""
        for directory in self._directories.live():
            with self._directories.guard(directory):
                directory.room.refresh()

    def checkpoint_recovery_points(self) -> None:
        """Write the recovery points of all working directories."""
        with contextlib.suppress(KafkaStorageError):
            self._directories.checkpoint_new_logs(self._directories.live())

    def checkpoint_log_starts(self) -> None:
        """Write the log start offsets and the copies of topic configurations in all working directories."""
        for directory in self._directories.live():
            with contextlib.suppress(KafkaStorageError), self._directories.guard(directory):
                directory.write_log_starts(partial(self._directories.listed_in, directory.path))
                directory.write_configs()

    def configure(self, config: BrokerConfig) -> None:
        """Use a new configuration of the broker from now on."""
        self._config = config

    def apply_retention(
        self,
        now_ms: int,
        high_watermark: Callable[[TopicPartition], int | None] | None = None,
        is_led: Callable[[TopicPartition], bool] = lambda _: True,
    ) -> int:
        """Delete the segments that retention selects and return how many.

        now_ms: of the wall clock. high_watermark: returns a partition's high watermark, at or above which nothing is
        deleted; None, also as a result: the log end offset. is_led: returns whether the broker leads the partition; in
        other partitions, only segments below the log start are deleted.
        """
        count = 0
        for log in self._directories:
            limit = high_watermark(log.partition) if high_watermark else None
            with contextlib.suppress(KafkaStorageError):
                count += log.delete_old_segments(now_ms, high_watermark=limit, is_led=is_led(log.partition))
        return count

    def expire_producers(self, now_ms: int) -> int:
        """Forget the producers that were silent for producer.id.expiration.ms; return how many. now_ms: wall clock."""
        after_ms = self._config.producer_id_expiration_ms
        return sum(log.expire_producers(now_ms, after_ms) for log in self._directories)

    def delete_expired(self, now_ms: int) -> int:
        """Remove the files of deleted segments and partitions whose delay has passed; return the number of both.

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
