"""Check for free space for more records on the disk of a log directory.

Appends stop before the disk is full (log.dir.min.free.bytes). The remaining space is for files that a broker needs to
run and to restart: indexes, checkpoints, the cluster store. Records stay readable, and clients get a retriable error.
Appends resume when an operator or retention has freed space.

Other writers may still fill the disk, or a quota may be reached. A write that fails because of that (`needed`) leaves
its log unchanged, and stops appends as well, until `look` could write a file of `PROBE_BYTES`. The free space that the
disk reports is not enough to decide that: a quota may allow less or more, and inodes may have run out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sparklog.base.errors import KafkaStorageError
from sparklog.base.fs import Fs
from sparklog.log.disk import NO_ROOM

PROBE = ".room"
PROBE_BYTES = 1 << 20
logger = logging.getLogger(__name__)


class FreeSpace:
    """The free space of one directory. The disk is queried once an appended allowance is used up, and by `look`."""

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
        self._refusal = ""
        """The error text when the disk was full; empty once a probe has found room."""

    def take(self, size: int) -> None:
        """Account for `size` bytes before they are appended. Raises KafkaStorageError if there is no room for them."""
        if self._refusal:
            raise KafkaStorageError(
                f"log directory {self._path} is full: nothing is appended until there is room: {self._refusal}"
            )
        if size > self._left and not self._ask(size):
            raise KafkaStorageError(
                f"log directory {self._path} has {self.free_bytes:,} bytes free, and log.dir.min.free.bytes is "
                f"{self._min_free_bytes:,}: nothing is appended until there is room"
            )
        self._left -= size

    def look(self) -> None:
        """Query the disk for room; after a failed write, by writing a probe file. Raises OSError."""
        if not self._refusal or self._is_probe_written():
            self._refusal = ""
            self._ask(1)

    @contextmanager
    def needed(self, what: str) -> Iterator[None]:
        """Wrap a write that can be retried: turn a full disk into KafkaStorageError, which is no disk failure."""
        try:
            yield
        except OSError as error:
            self.check(error, what)
            raise

    def check(self, error: OSError, what: str) -> None:
        """Look at the error of a write that can be retried. Raise KafkaStorageError if the disk is full."""
        if error.errno in NO_ROOM:
            self._refusal = str(error)
            self._set_short(True)
            raise KafkaStorageError(f"no room for {what}: {error}") from error

    def _ask(self, size: int) -> bool:
        """Query the disk and return whether there is room for `size` bytes. Raises OSError."""
        if self._min_free_bytes:
            self.free_bytes = self._fs.free_bytes(self._path)
            # Allow half of it: the disk has other writers, such as logs in other directories.
            self._left = max(0, self.free_bytes - self._min_free_bytes) // 2
        self._set_short(bool(self._min_free_bytes) and self._left < size)
        return not self.is_short

    def _is_probe_written(self) -> bool:
        path = f"{self._path}/{PROBE}"
        try:
            file = self._fs.open(path, create=True)
            try:
                file.append(bytes(PROBE_BYTES))
                file.flush()
            finally:
                file.close()
                self._fs.remove(path)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            return False
        return True

    def _set_short(self, is_short: bool) -> None:
        if self.is_short != is_short:
            self.is_short = is_short
            tell = logger.error if is_short else logger.warning
            what = "has no room: nothing is appended" if is_short else "has room again: appends go on"
            tell("log directory %s %s (%s)", self._path, what, self._refusal or f"{self.free_bytes} bytes free")
