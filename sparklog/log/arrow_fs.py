"""Read access to a log directory in S3, HDFS or any other file system that `pyarrow.fs` supports."""

from __future__ import annotations

import errno
import os
import threading
from typing import Any

from pyarrow import fs as pafs

from sparklog.base.errors import ConfigError


class ArrowFile:
    """An open file. An Arrow file has one read position, so reads are serialized by a lock."""

    __slots__ = ("_file", "_lock", "size")

    def __init__(self, file: Any, size: int) -> None:
        self._file = file
        self._lock = threading.Lock()
        self.size = size

    def read_at(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes from `offset`; fewer only at the end of the file. Raises OSError."""
        with self._lock:
            self._file.seek(min(offset, self.size))
            data: bytes = self._file.read(size)
            return data

    def close(self) -> None:
        self._file.close()


class ArrowFs:
    """A `ReadFs` over a `pyarrow.fs.FileSystem`. Paths are the file system's own, without a scheme."""

    def __init__(self, filesystem: Any) -> None:
        self._fs = filesystem

    @classmethod
    def from_uri(cls, uri: str) -> tuple[ArrowFs, str]:
        """Return the file system that `uri` names (``s3://bucket/logs``, ``hdfs://host/logs``), and the path in it.

        Raises ConfigError if pyarrow does not support it.
        """
        try:
            filesystem, path = pafs.FileSystem.from_uri(uri)
        except (ValueError, OSError) as error:
            raise ConfigError(f"{uri}: {error}") from None
        return cls(filesystem), path

    def open_read(self, path: str) -> ArrowFile:
        """Open a file for reading. Raises FileNotFoundError, IsADirectoryError or OSError."""
        info = self._fs.get_file_info(path)
        if info.type == pafs.FileType.NotFound:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if info.type == pafs.FileType.Directory:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return ArrowFile(self._fs.open_input_file(path), info.size)

    def list(self, path: str) -> list[str]:
        """Return the names in the folder, sorted. Raises FileNotFoundError, NotADirectoryError or OSError."""
        return sorted(info.base_name for info in self._fs.get_file_info(pafs.FileSelector(path)))

    def exists(self, path: str) -> bool:
        return bool(self._fs.get_file_info(path).type != pafs.FileType.NotFound)
