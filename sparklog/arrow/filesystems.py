"""File systems of log directories: a local path, or a URI (``s3://``, ``hdfs://``, ``file://``) through `pyarrow.fs`.

ArrowFs        a file system of pyarrow.fs, for reads
open_reader    a reader of one partition's folder
LogReaders     readers of many folders, for one plan
LogDirOwner    the broker of a log directory: two machines may have different ones at one path
sees           whether this machine has the folder of another machine's plan
"""

from __future__ import annotations

import errno
import os
import posixpath
import socket
import threading
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from pyarrow import fs as pafs

from sparklog.base.errors import ConfigError
from sparklog.base.fs import LocalFs, ReadFs
from sparklog.log.directory.checkpoints import CorruptCheckpoint, DirectoryCheckpoints, MetaProperties
from sparklog.log.reader import LogReader


class ArrowFile:
    """An open file. Implements ReadFile. A lock serializes reads, because an Arrow file has one read position."""

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
        """Return the file system of `uri` (``s3://bucket/logs``, ``hdfs://host/logs``), and the path in it.

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
    """Return the file system of `location`, and the path in it."""
    if not urlsplit(location).scheme:
        return LocalFs(), location
    return ArrowFs.from_uri(location)


def open_reader(location: str) -> LogReader:
    """Return a reader of the partition's folder at `location`."""
    return LogReader(*open_folder(location))


class LogDirOwner(NamedTuple):
    """The broker of a log directory, from its ``meta.properties``."""

    cluster_id: str
    broker_id: int

    @classmethod
    def of(cls, path: str) -> LogDirOwner | None:
        """Return the owner of the log directory at `path` on this machine.

        None without an owner, if the file cannot be read, and for a URI, which is the same on all machines.
        """
        if urlsplit(path).scheme:
            return None
        try:
            found = MetaProperties.read(LocalFs(), path)
        except (CorruptCheckpoint, OSError):
            return None
        return None if found is None else cls(found.cluster_id, found.broker_id)


def log_directory(location: str) -> str:
    """Return the log directory of the partition's folder at `location`."""
    return posixpath.dirname(location.rstrip("/"))


def sees(folder: str, owner: LogDirOwner | None) -> bool:
    """Return whether this machine has the partition's folder, in a log directory of the driver's `owner`."""
    parent = log_directory(folder)
    if owner is not None:
        return LogDirOwner.of(parent) == owner
    fs, path = open_folder(parent)
    return not isinstance(fs, LocalFs) or fs.exists(path or ".")


def not_seen(folder: str) -> ConfigError:
    """Return the error of a read without brokers, on an executor that does not have the folder."""
    parent = log_directory(folder)
    found = LogDirOwner.of(parent)
    seen = f"has that of broker {found.broker_id} of cluster {found.cluster_id} there" if found else "does not"
    return ConfigError(
        f"the driver sees the log directory {parent}, but the executor on {socket.gethostname()} {seen}. Driver and "
        "executors need the same one at this path (a shared file system, or an object store), or a broker to read from"
    )


class LogReaders:
    """Readers of many folders for one plan, with one read of each log directory's checkpoints and owner."""

    def __init__(self) -> None:
        self._checkpoints: dict[str, DirectoryCheckpoints] = {}
        self._owners: dict[str, LogDirOwner | None] = {}

    def open(self, location: str) -> LogReader:
        """Return a reader of the partition's folder at `location`."""
        fs, folder = open_folder(location)
        parent = log_directory(location)
        if parent not in self._checkpoints:
            self._checkpoints[parent] = DirectoryCheckpoints(fs, posixpath.dirname(folder.rstrip("/")))
        return LogReader(fs, folder, self._checkpoints[parent])

    def owner(self, location: str) -> LogDirOwner | None:
        """Return the owner of the log directory with the partition's folder at `location`."""
        parent = log_directory(location)
        if parent not in self._owners:
            self._owners[parent] = LogDirOwner.of(parent)
        return self._owners[parent]
