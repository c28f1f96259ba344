"""Whether there is room on the disk of a log directory for more records.

Appends stop before the disk is full (log.dir.min.free.bytes): what is left is for what lets a broker go on, and start
again: indexes, checkpoints, the cluster store. Records stay readable, and clients are told with an error that they try
again after. When there is room again, because somebody has made some or retention has, appends go on.

Others may fill the disk all the same, or a quota end. A write that fails for that (`needed`) leaves its log as it was,
and stops appends as well, until `look` could write a file of `PROBE_BYTES`: what the disk says to be free is less than
a quota allows, or more, and tells nothing of names.
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


class Room:
    """Of one directory. The disk is asked when as much has been appended as there was room for, and by `look`."""

    def __init__(self, fs: Fs, path: str, min_free_bytes: int = 0) -> None:
        self.is_short = False
        """Whether appends are refused."""
        self.free_bytes = 0
        """When the disk was last asked."""
        self._fs = fs
        self._path = path
        self._min_free_bytes = min_free_bytes
        self._left = 0
        """Of what may be appended before the disk is asked again."""
        self._refusal = ""
        """What the disk said when it was full; empty once a probe has found room."""

    def take(self, size: int) -> None:
        """Called before so many bytes are appended. Raises KafkaStorageError where there is no room for them."""
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
        """Ask the disk whether there is room, by a write where one has failed. Raises OSError."""
        if not self._refusal or self._is_probe_written():
            self._refusal = ""
            self._ask(1)

    @contextmanager
    def needed(self, what: str) -> Iterator[None]:
        """Around a write that may fail and be tried again: a full disk is a KafkaStorageError here, and no failure."""
        try:
            yield
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._refusal = str(error)
            self._set_short(True)
            raise KafkaStorageError(f"no room for {what}: {error}") from error

    def _ask(self, size: int) -> bool:
        """Whether there is room for so many bytes. Raises OSError."""
        if self._min_free_bytes:
            self.free_bytes = self._fs.free_bytes(self._path)
            # Half of it: others write to the disk too, logs in other directories among them.
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
