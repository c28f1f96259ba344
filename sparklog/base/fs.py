"""The file system as an argument: exactly the operations that the log needs.

`ReadFs` is enough to read segments (a folder, S3, HDFS); `Fs` adds the operations that a broker needs to write them.
Paths are strings with '/' between parts. Only `File.flush` and `Fs.flush_dir` protect against a power cut: bytes are
durable after their file's `flush`, a new, renamed or removed name after its folder's `flush_dir`.

Every implementation passes the same contract suite (tests/base/test_fs.py). Errors are OSError, as from `os`.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class ReadFile(Protocol):
    """An open file with random reads; several threads may read at once."""

    @property
    def size(self) -> int:
        """The length in bytes. Changes through other objects may be missing."""
        ...

    def read_at(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset` on; fewer only at the end of the file."""
        ...

    def close(self) -> None:
        """Close the file; has no effect on a closed file."""
        ...


class File(ReadFile, Protocol):
    """An open file that can also be appended to, truncated and flushed."""

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end. Raises OSError on failure; a part may then be written."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes, or fill it up with zeros."""
        ...

    def flush(self) -> None:
        """Return once every byte written so far would survive a power cut (fdatasync)."""
        ...

    def fileno(self) -> int:
        """Return the descriptor, for sendfile. Raises OSError if there is none."""
        ...


class ReadFs(Protocol):
    """Folders and files that can be listed and read."""

    def open_read(self, path: str) -> ReadFile:
        """Open a file for reading. Raises FileNotFoundError if there is none."""
        ...

    def list(self, path: str) -> list[str]:
        """Return the names in the folder, sorted."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether there is a file or folder."""
        ...


class Fs(ReadFs, Protocol):
    """Folders and files that can also be written."""

    def free_bytes(self, path: str) -> int:
        """Return the bytes available to this process on the disk of the folder `path`."""
        ...

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and appending.

        Raises FileNotFoundError if there is none; with `create`, an empty one is made instead.
        """
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomically give `source` (file or folder) the name `target`, replacing a file of that name."""
        ...

    def remove(self, path: str) -> None:
        """Remove one file."""
        ...

    def make_dir(self, path: str) -> None:
        """Make the folder and its parents; no error if it exists."""
        ...

    def remove_dir(self, path: str) -> None:
        """Remove the folder and everything in it."""
        ...

    def flush_dir(self, path: str) -> None:
        """Return once the names in the folder would survive a power cut."""
        ...

    def lock(self, path: str) -> AbstractContextManager[None]:
        """Hold a lock on the file `path`, which is created if there is none, as long as the context lasts.

        Raises BlockingIOError if the lock is held already, by another process or by this one.
        """
        ...


class LocalFile:
    """A local file, read with pread and appended with pwrite. Implements File."""

    __slots__ = ("_fd", "size")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.size = os.fstat(fd).st_size

    def read_at(self, offset: int, size: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size and (data := os.pread(self._fd, size - got, offset + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def append(self, data: Buffer) -> None:
        written = os.pwrite(self._fd, data, self.size)
        self.size += written
        if written < len(data):  # after a signal or on a nearly full disk: write the rest
            rest = memoryview(data)[written:]
            while rest:
                written = os.pwrite(self._fd, rest, self.size)
                self.size += written
                rest = rest[written:]

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self.size = size

    def flush(self) -> None:
        os.fdatasync(self._fd)

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()  # the last reference closes it: a slice may outlive its segment


class LocalFs:
    """The file system of this machine. Implements Fs."""

    def open_read(self, path: str) -> LocalFile:
        return LocalFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def open(self, path: str, *, create: bool = False) -> LocalFile:
        return LocalFile(os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644))

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def free_bytes(self, path: str) -> int:
        volume = os.statvfs(path)
        return volume.f_bavail * volume.f_frsize

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.remove(path)

    def make_dir(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def remove_dir(self, path: str) -> None:
        for name in os.listdir(path):
            child = os.path.join(path, name)
            if os.path.isdir(child) and not os.path.islink(child):
                self.remove_dir(child)
            else:
                os.remove(child)
        os.rmdir(path)

    def flush_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    @contextmanager
    def lock(self, path: str) -> Iterator[None]:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(fd)
