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
from collections.abc import Callable, Iterable
from functools import partial

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import KafkaStorageError
from sparklog.base.fs import Fs
from sparklog.base.ids import TopicPartition
from sparklog.log.directories import LogDirectories
from sparklog.log.directory import LogDirectory


class LogUpkeep(LogDirectories):
    """The part of a `LogManager` that looks after its logs."""

    def __init__(
        self,
        fs: Fs,
        dirs: Iterable[str],
        config: BrokerConfig,
        on_dir_failure: Callable[[str, OSError], None] | None,
    ) -> None:
        super().__init__(fs, dirs, on_dir_failure, config.log_dir_min_free_bytes)
        self._config = config
        self._unlisted: set[LogDirectory] = set()
        """Those with logs that are not in their checkpoints yet."""

    def flush_due(self, now_ms: int) -> None:
        """Flush the logs whose flush.ms has passed, and closed segments. now_ms: of the monotonic clock.

        Recovery points that closed segments have moved, and those of new logs, are written down at once.
        """
        moved = self._take_unlisted()
        for log in self:
            with contextlib.suppress(KafkaStorageError):  # it has been said, and its directory is offline
                if log.flush_if_due(now_ms):
                    moved.add(self._directory_of(log))
        with contextlib.suppress(KafkaStorageError):  # no room yet
            self._write_recovery_points(moved)

    def list_new(self) -> None:
        """Write down which logs there are, if some are new: after a crash a gap in one of them is a hole from now on.

        To be called before others count on what is in them. Raises KafkaStorageError where there is no room for that.
        """
        self._write_recovery_points(self._take_unlisted())

    def _take_unlisted(self) -> set[LogDirectory]:
        with self._lock:
            taken, self._unlisted = self._unlisted, set()
            return taken

    def _write_recovery_points(self, directories: Iterable[LogDirectory]) -> None:
        """Raises KafkaStorageError where there was no room in one of them; the next call of `flush_due` tries again."""
        no_room: KafkaStorageError | None = None
        for directory in directories:
            try:
                with self._guard(directory):
                    directory.write_recovery_points(partial(self._logs_in, directory.path))
            except KafkaStorageError as error:
                no_room = error
                with self._lock:
                    self._unlisted.add(directory)
        if no_room:
            raise no_room

    def look_for_room(self) -> None:
        """Go on with appends where there is room again, and stop them where there is not."""
        for directory in self._live():
            with self._guard(directory):
                directory.room.look()

    def checkpoint_recovery_points(self) -> None:
        with contextlib.suppress(KafkaStorageError):
            self._write_recovery_points(self._live())

    def checkpoint_log_starts(self) -> None:
        for directory in self._live():
            with contextlib.suppress(KafkaStorageError), self._guard(directory):
                directory.write_log_starts(partial(self._logs_in, directory.path))
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
        for log in self:
            limit = high_watermark(log.partition) if high_watermark else None
            with contextlib.suppress(KafkaStorageError):
                count += log.delete_old_segments(now_ms, high_watermark=limit, is_led=is_led(log.partition))
        return count

    @property
    def greatest_producer_id(self) -> int:
        """Of those that a log remembers; -1 where there is none."""
        return max((producer_id for log in self for producer_id in log.producers), default=-1)

    def expire_producers(self, now_ms: int) -> int:
        """Forget the producers that were silent for producer.id.expiration.ms, and say how many. now_ms: wall clock."""
        after_ms = self._config.producer_id_expiration_ms
        return sum(log.expire_producers(now_ms, after_ms) for log in self)

    def delete_expired(self, now_ms: int) -> int:
        """Remove the files of segments and partitions whose delay has passed, and say of how many.

        now_ms: of the monotonic clock.
        """
        count = 0
        for log in self:
            with contextlib.suppress(KafkaStorageError):
                count += log.delete_expired(now_ms)
        for directory in self._live():
            with self._guard(directory):
                count += directory.remove_expired(now_ms)
        return count

    def _write_checkpoints(self, directory: LogDirectory) -> None:
        directory.write_recovery_points(partial(self._logs_in, directory.path))
        directory.write_log_starts(partial(self._logs_in, directory.path))
        directory.write_cleaned_offsets(partial(self._logs_in, directory.path))

    def _write_promises(self, directory: LogDirectory) -> None:
        """As a log asks that is about to change what the checkpoints promise of it. Raises KafkaStorageError."""
        with self._guard(directory, reraise=True):
            self._write_checkpoints(directory)
