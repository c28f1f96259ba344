"""Where folders of partitions are: a local path, or a URI (``s3://``, ``hdfs://``, ``file://``) through `pyarrow.fs`.

ArrowFs        a file system of pyarrow.fs, for reads
open_reader    a reader of one partition's folder
Readers        readers of many folders, for one plan
"""

from __future__ import annotations

import errno
import os
import posixpath
import threading
from typing import Any
from urllib.parse import urlsplit

from pyarrow import fs as pafs

from sparklog.base.errors import ConfigError
from sparklog.base.fs import LocalFs, ReadFs
from sparklog.log.directory.checkpoints import DirectoryCheckpoints
from sparklog.log.reader import LogReader


class ArrowFile:
    """An open file. Implements ReadFile. An Arrow file has one read position, so reads are serialized by a lock."""

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
    """A `pyarrow.fs.FileSystem`. Paths are the file system's own, without a scheme. Implements ReadFs."""

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
        """Return the file, open for reading. Raises FileNotFoundError, IsADirectoryError or OSError."""
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


def open_folder(location: str) -> tuple[ReadFs, str]:
    """Return the file system that holds `location`, and the path in it."""
    if not urlsplit(location).scheme:
        return LocalFs(), location
    return ArrowFs.from_uri(location)


def open_reader(location: str) -> LogReader:
    """Return a reader of the partition's folder at `location`."""
    return LogReader(*open_folder(location))


class Readers:
    """Readers of many folders for one plan, which read the checkpoints of a log directory once."""

    def __init__(self) -> None:
        self._checkpoints: dict[str, DirectoryCheckpoints] = {}

    def open(self, location: str) -> LogReader:
        """Return a reader of the partition's folder at `location`."""
        fs, folder = open_folder(location)
        parent = posixpath.dirname(location.rstrip("/"))
        if parent not in self._checkpoints:
            self._checkpoints[parent] = DirectoryCheckpoints(fs, posixpath.dirname(folder.rstrip("/")))
        return LogReader(fs, folder, self._checkpoints[parent])
