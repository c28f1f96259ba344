"""Check for free space for more records on the disk of a log directory.

Appends stop before the disk is full (log.dir.min.free.bytes). The remaining space is for files that a broker needs to
run and to restart: indexes, checkpoints, the cluster store. Records stay readable, and clients get a retriable error.
Appends resume when an operator or retention has freed space.

Other writers may still fill the disk, or a quota may be reached. A write that then fails (`retriable_write`) leaves its
log unchanged and stops appends, until `refresh` can write a file of `PROBE_BYTES`. The free space that the disk reports
does not decide that: a quota may allow less or more, and inodes may have run out.

<log dir>/.reserve keeps 1 MiB for checkpoints, such as the one that retention writes before it deletes, and for the
files of a start. It is removed when one of them has no room, and written again once there is room (`refresh`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sparklog.base.errors import KafkaStorageError
from sparklog.base.fs import Fs
from sparklog.log.disk import NO_ROOM

PROBE = ".room"
PROBE_BYTES = 1 << 20
RESERVE = ".reserve"
RESERVE_BYTES = 1 << 20
logger = logging.getLogger(__name__)


class FreeSpace:
    """The free space of one directory. `refresh` queries the disk, and so does an append beyond the allowance."""

    def __init__(self, fs: Fs, path: str, min_free_bytes: int = 0) -> None:
        self.is_short = False
        """Appends are refused."""
        self.free_bytes = 0
        """The free bytes when the disk was last queried."""
        self._fs = fs
        self._path = path
        self._min_free_bytes = min_free_bytes
        self._left = 0
        """The bytes that may be appended before the disk is queried again."""
        self._wanted = 1
        """The largest refused size: appends resume once there is room for it."""
        self._refusal = ""
        """The error text when the disk was full; empty once a probe has found room."""

    def claim(self, size: int) -> None:
        """Account for `size` bytes before they are appended. Raises KafkaStorageError if there is no room for them."""
        if self._refusal:
            raise KafkaStorageError(
                f"log directory {self._path} is full: nothing is appended until there is room: {self._refusal}"
            )
        if size > self._left and not self._query_disk(size):
            raise KafkaStorageError(
                f"log directory {self._path} has {self.free_bytes:,} bytes free, and log.dir.min.free.bytes is "
                f"{self._min_free_bytes:,}: nothing is appended until there is room"
            )
        self._left -= size

    def refresh(self) -> None:
        """Query the disk for room; after a failed write, by writing a probe file. Raises OSError."""
        if not self._refusal or self._is_written(PROBE, PROBE_BYTES):
            self._refusal = ""
            self._query_disk(self._wanted)
            self.keep_reserve()

    def keep_reserve(self) -> None:
        """Write the reserve if it is missing and there is room for it. Raises OSError."""
        path = f"{self._path}/{RESERVE}"
        if not self._fs.exists(path):
            self._is_written(RESERVE, RESERVE_BYTES, is_kept=True)

    def release_reserve(self) -> bool:
        """Remove the reserve for a write that has no room; return whether there was one. Raises OSError."""
        path = f"{self._path}/{RESERVE}"
        if not self._fs.exists(path):
            return False
        self._fs.remove(path)
        return True

    def release_reserve_if_full(self) -> None:
        """Remove the reserve at a start if the disk has less free space than the reserve takes. Raises OSError."""
        if self._fs.free_bytes(self._path) < RESERVE_BYTES:
            self.release_reserve()

    def write(self, what: str, write: Callable[[], None]) -> None:
        """Call `write`. On a full disk, release the reserve and call it again. Raises as `retriable_write` does."""
        with self.retriable_write(what):
            try:
                write()
            except OSError as error:
                if error.errno not in NO_ROOM or not self.release_reserve():
                    raise
                self._refuse_appends(error)  # so that appends do not use the released bytes
                write()

    @contextmanager
    def retriable_write(self, what: str) -> Iterator[None]:
        """Wrap a write that can be retried: turn a full disk into KafkaStorageError, which is no disk failure."""
        try:
            yield
        except OSError as error:
            self.check(error, what)
            raise

    def check(self, error: OSError, what: str) -> None:
        """Check the error of a write that can be retried: raise KafkaStorageError if the disk is full."""
        if error.errno in NO_ROOM:
            self._refuse_appends(error)
            raise KafkaStorageError(f"no room for {what}: {error}") from error

    def _refuse_appends(self, error: OSError) -> None:
        self._refusal = str(error)
        self._set_short(True)

    def _query_disk(self, size: int) -> bool:
        """Query the disk and return whether there is room for `size` bytes. Raises OSError."""
        if self._min_free_bytes:
            self.free_bytes = self._fs.free_bytes(self._path)
            # Allow half of the free space: the disk has other writers, such as logs in other directories.
            self._left = max(0, self.free_bytes - self._min_free_bytes) // 2
        self._set_short(bool(self._min_free_bytes) and self._left < size)
        self._wanted = max(size, self._wanted) if self.is_short else 1
        return not self.is_short

    def _is_written(self, name: str, size: int, *, is_kept: bool = False) -> bool:
        """Return whether there was room for a file of that size; it stays only if `is_kept`."""
        path = f"{self._path}/{name}"
        is_whole = False
        try:
            file = self._fs.open(path, create=True)
            try:
                file.append(bytes(size))
                file.flush()
                is_whole = True
            finally:
                file.close()
                if not (is_whole and is_kept):
                    self._fs.remove(path)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
        return is_whole

    def _set_short(self, is_short: bool) -> None:
        if self.is_short != is_short:
            self.is_short = is_short
            write_log = logger.error if is_short else logger.warning
            what = "has no room: nothing is appended" if is_short else "has room again: appends go on"
            write_log("log directory %s %s (%s)", self._path, what, self._refusal or f"{self.free_bytes} bytes free")
