"""Whether there is room on the disk of a log directory for more records.

Appends stop before the disk is full (log.dir.min.free.bytes): what is left is for what lets a broker go on, and start
again: indexes, checkpoints, the cluster store. Records stay readable, and clients are told with an error that they try
again after. When there is room again, because somebody has made some or retention has, appends go on.
"""

from __future__ import annotations

import logging

from sparklog.base.errors import KafkaStorageError
from sparklog.base.fs import Fs

logger = logging.getLogger(__name__)


class Room:
    """Of one directory. The disk is asked when as much has been appended as there was room for, and by `look`."""

    def __init__(self, fs: Fs, path: str, min_free_bytes: int) -> None:
        self.is_short = False
        """Whether appends are refused."""
        self.free_bytes = 0
        """When the disk was last asked."""
        self._fs = fs
        self._path = path
        self._min_free_bytes = min_free_bytes
        self._left = 0
        """Of what may be appended before the disk is asked again."""

    def take(self, size: int) -> None:
        """Called before so many bytes are appended. Raises KafkaStorageError where there is no room for them."""
        if size > self._left and not self.look(size):
            raise KafkaStorageError(
                f"log directory {self._path} has {self.free_bytes:,} bytes free, and log.dir.min.free.bytes is "
                f"{self._min_free_bytes:,}: nothing is appended until there is room"
            )
        self._left -= size

    def look(self, size: int = 1) -> bool:
        """Ask the disk whether there is room for so many bytes. Raises OSError."""
        if not self._min_free_bytes:
            return True
        self.free_bytes = self._fs.free_bytes(self._path)
        # Half of it: others write to the disk too, logs in other directories among them.
        self._left = max(0, self.free_bytes - self._min_free_bytes) // 2
        was_short, self.is_short = self.is_short, self._left < size
        if self.is_short != was_short:
            tell = logger.error if self.is_short else logger.warning
            what = "has no room: nothing is appended" if self.is_short else "has room again: appends go on"
            tell("log directory %s %s (%d bytes free)", self._path, what, self.free_bytes)
        return not self.is_short
