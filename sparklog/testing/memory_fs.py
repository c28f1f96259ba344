"""A file system in memory that simulates disk failures and power cuts.

After a power cut, `crash` keeps what POSIX guarantees. As on a real disk, some unflushed changes may survive too:

    bytes    Each file has the bytes of its last `flush`. Each page that was appended or cut later survives or not.
             The new size survives or not, independently of the pages. A lost page keeps its old bytes, or zeros if
             the file was shorter.
    names    Each folder has the names of its last `flush_dir`. Each later change of a name survives or not. A rename
             survives whole or not at all.

Faults: `fail_under` makes a path fail until `repair`: with EIO like a dead disk, with ENOSPC like a full one, with
EMFILE like any disk of a process without file descriptors.
`cut_power_after` cuts the power in the middle of a change, after n others; every later operation raises PowerCut, and
`crash` returns what the next start finds. Reads do not count as changes. The caller's `random.Random` makes all random
choices. `kill` simulates the death of the process alone: the next process finds everything that was written.
"""

from __future__ import annotations

import errno
import os
import posixpath
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sparklog.base.fs import Buffer

PAGE_SIZES = (32, 64, 512, 4096)
"""Sizes in bytes that the disk may write as one unit. Some are small, so that short files are torn in many ways.

None is smaller than the fields before a batch's CRC: no real disk loses a single one of these fields, and no reader
could notice the loss.
"""


class PowerCut(Exception):  # not an OSError: code that handles a failing disk must not catch it
    """Raised by every operation after a power cut: the machine is off."""


@dataclass(slots=True, eq=False)
class _FileContent:
    """A file's current bytes, and its bytes at the last flush."""

    data: bytearray = field(default_factory=bytearray)
    flushed: bytes = b""


@dataclass(slots=True, eq=False)
class _Folder:
    """A folder's current names, its names at the last flush, and each change since that flush."""

    names: dict[str, _FileContent | _Folder] = field(default_factory=dict)
    flushed: dict[str, _FileContent | _Folder] = field(default_factory=dict)
    changes: list[_NameChange] = field(default_factory=list)

    def apply(self, change: _NameChange) -> None:
        change.apply(self.names)
        self.changes.append(change)


@dataclass(frozen=True, slots=True)
class _NameChange:
    """A change of one name: the name now refers to `node`, or is removed if `node` is None.

    A rename sets `moved_from`, the node's old name.
    """

    name: str
    node: _FileContent | _Folder | None
    moved_from: str = ""

    def apply(self, names: dict[str, _FileContent | _Folder]) -> None:
        if self.moved_from:
            if names.get(self.moved_from) is not self.node:
                return
            del names[self.moved_from]
        if self.node is None:
            names.pop(self.name, None)
        else:
            names[self.name] = self.node


class MemoryFile:
    """An open file of a `MemoryFs`. Implements File."""

    __slots__ = ("_content", "_fs", "_path")

    def __init__(self, fs: MemoryFs, path: str, content: _FileContent) -> None:
        self._fs = fs
        self._path = path
        self._content: _FileContent | None = content

    @property
    def size(self) -> int:
        return len(self._open().data)

    def read_at(self, offset: int, size: int) -> bytes:
        content = self._open()
        self._fs.check(self._path)
        return bytes(content.data[offset : offset + size])

    def append(self, data: Buffer) -> None:
        content = self._open()
        with self._fs.change(self._path, takes_room=True) as share:
            if share < 1:  # a power cut or a full disk may leave a part of the data
                content.data += memoryview(data)[: int(len(data) * share)]
                return
            content.data += data

    def truncate(self, size: int) -> None:
        content = self._open()
        with self._fs.change(self._path):
            del content.data[size:]
            content.data.extend(bytes(size - len(content.data)))

    def flush(self) -> None:
        content = self._open()
        with self._fs.change(self._path) as share:
            if share == 1:
                content.flushed = bytes(content.data)

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "a file in memory has no descriptor", self._path)

    def close(self) -> None:
        self._content = None

    def _open(self) -> _FileContent:
        if self._content is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)
        return self._content


class MemoryFs:
    """A file system in memory. Implements Fs. Safe to use from several threads."""

    def __init__(self) -> None:
        self.changes = 0
        """The number of changes so far."""
        self.free = 1 << 40
        """The free bytes that the disk reports. Only tests change it; writes do not."""
        self._root = _Folder()
        self._locks: set[str] = set()
        self._failing: dict[str, tuple[int, int]] = {}
        self._power_cut_at: int | None = None
        self._share = random.Random(0)
        self._is_off = False
        self._on_power_cut: Callable[[], None] | None = None
        self._mutex = threading.RLock()

    # Faults

    def watch_power(self, on_power_cut: Callable[[], None]) -> None:
        """Call `on_power_cut` at the moment of the power cut that `cut_power_after` arranges."""
        self._on_power_cut = on_power_cut

    def fail_under(self, path: str, error_number: int, *, after: int = 0) -> None:
        """Make every operation on `path` and below fail with `error_number`.

        With ENOSPC only those fail that take space, with EMFILE only those that open a file or a folder.

        after: the number of changes, anywhere in the file system, that precede the failure.
        """
        self._failing[posixpath.normpath(path)] = error_number, self.changes + after

    def repair(self, path: str) -> None:
        """End the failure that `fail_under` began for exactly this path."""
        self._failing.pop(posixpath.normpath(path), None)

    def cut_power_after(self, changes: int, chance: random.Random) -> None:
        """Cut the power in the middle of a change, after `changes` others. `chance` decides how much of it is done."""
        self._power_cut_at = self.changes + changes
        self._share = chance

    def crash(self, chance: random.Random) -> MemoryFs:
        """Cut the power now. Return the file system that survives; this one raises PowerCut from now on."""
        self._is_off = True
        found = MemoryFs()
        keep = chance.choice((0.0, 0.5, 0.9, 1.0))
        found._root = _survivor(self._root, chance, keep, {})
        return found

    def kill(self) -> MemoryFs:
        """Kill the process. Return the file system that the next process finds: all data and disk failures, no locks.

        This one raises PowerCut from now on.
        """
        self._is_off = True
        found = MemoryFs()
        found.changes, found._root, found._failing = self.changes, self._root, self._failing
        return found

    def files(self, folder: str) -> Iterator[str]:
        """Yield the paths of all files below a folder, in the order of their names. Disk failures do not apply."""
        found = self._find(folder)
        for name, node in sorted(found.names.items()) if isinstance(found, _Folder) else ():
            path = f"{folder}/{name}"
            if isinstance(node, _Folder):
                yield from self.files(path)
            else:
                yield path

    def content(self, path: str) -> bytes:
        """Return the bytes of a file. Disk failures do not apply."""
        return bytes(self._content(path).data)

    def damage(self, path: str, data: bytes | None) -> None:
        """Replace the bytes of a file, flushed ones too, or remove the file if `data` is None.

        Disk failures do not apply. Raise FileNotFoundError if there is no such file.
        """
        folder, name = self._parent(path)
        content = self._content(path)
        if data is None:
            folder.names.pop(name)
            folder.flushed.pop(name, None)
            folder.changes = [change for change in folder.changes if change.name != name]
        else:
            content.data, content.flushed = bytearray(data), data

    def check(self, path: str, *, opens: bool = False) -> None:
        """Raise PowerCut if the power is off, or OSError if the disk fails under `path`. A full disk raises nothing.

        opens: the operation needs a file descriptor
        """
        if self._is_off:
            raise PowerCut(path)
        number = self._failure_of(path)
        if number not in (0, errno.ENOSPC) and (opens or number != errno.EMFILE):
            raise OSError(number, os.strerror(number), path)

    def _failure_of(self, path: str) -> int:
        """Return the error number of the failure that covers `path`; 0 if none does."""
        for failing, (number, since) in self._failing.items():
            if self.changes >= since and _is_under(path, failing):
                return number
        return 0

    @contextmanager
    def change(self, path: str, *, takes_room: bool = False) -> Iterator[float]:
        """Count a change, and yield the share of it that the caller must make: 1 for all, less if a fault stops it.

        Raise PowerCut or OSError, before the change or after a part of it.
        """
        with self._mutex:
            self.check(path)
            self.changes += 1
            if self._power_cut_at is not None and self.changes > self._power_cut_at:
                self._is_off = True
                if self._on_power_cut:
                    self._on_power_cut()
                yield self._share.choice((0.0, self._share.random(), 1.0))
                raise PowerCut(path)
            if takes_room and self._failure_of(path) == errno.ENOSPC:
                yield 0.5
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            yield 1

    # Fs

    def open_read(self, path: str) -> MemoryFile:
        with self._mutex:
            self.check(path, opens=True)
            return MemoryFile(self, path, self._content(path))

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        with self._mutex:
            self.check(path, opens=True)
            folder, name = self._parent(path)
            if create and name not in folder.names:
                with self.change(path, takes_room=True) as share:
                    if share == 1:
                        folder.apply(_NameChange(name, _FileContent()))
            return MemoryFile(self, path, self._content(path))

    def list(self, path: str) -> list[str]:
        with self._mutex:
            self.check(path, opens=True)
            return sorted(self._folder(path).names)

    def free_bytes(self, path: str) -> int:
        with self._mutex:
            self.check(path)
            return self.free

    def exists(self, path: str) -> bool:
        with self._mutex:
            self.check(path)
            return self._find(path) is not None

    def rename(self, source: str, target: str) -> None:
        with self._mutex:
            self.check(source)
            folder, name = self._parent(source)
            to_folder, to_name = self._parent(target)
            if folder is not to_folder:
                raise OSError(errno.EXDEV, "a rename stays in its folder here", source)
            node = folder.names.get(name)
            there = folder.names.get(to_name)
            if node is None:
                raise _no_such(source)
            if isinstance(there, _Folder) and not isinstance(node, _Folder):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
            if isinstance(there, _Folder) and there.names:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), target)
            with self.change(source) as share:
                if share == 1 and node is not there:
                    folder.apply(_NameChange(to_name, node, moved_from=name))

    def remove(self, path: str) -> None:
        with self._mutex:
            self._content(path)
            folder, name = self._parent(path)
            with self.change(path) as share:
                if share == 1:
                    folder.apply(_NameChange(name, None))

    def make_dir(self, path: str) -> None:
        with self._mutex:
            self.check(path)
            folder = self._root
            for name in _split_path(path):
                node = folder.names.get(name)
                if node is None:
                    with self.change(path, takes_room=True) as share:
                        if share < 1:
                            continue
                        node = _Folder()
                        folder.apply(_NameChange(name, node))
                if not isinstance(node, _Folder):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
                folder = node

    def remove_dir(self, path: str) -> None:
        with self._mutex:
            self.check(path, opens=True)
            for name, node in list(self._folder(path).names.items()):
                child = f"{path}/{name}"
                if isinstance(node, _Folder):
                    self.remove_dir(child)
                else:
                    self.remove(child)
            folder, name = self._parent(path)
            with self.change(path) as share:
                if share == 1:
                    folder.apply(_NameChange(name, None))

    def flush_dir(self, path: str) -> None:
        with self._mutex:
            self.check(path, opens=True)
            folder = self._folder(path)
            with self.change(path) as share:
                if share == 1:
                    folder.flushed = dict(folder.names)
                    folder.changes.clear()

    @contextmanager
    def lock(self, path: str) -> Iterator[None]:
        with self._mutex:
            self.open(path, create=True).close()
            if path in self._locks:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
            self._locks.add(path)
        try:
            yield
        finally:
            self._locks.discard(path)

    # The tree

    def _find(self, path: str) -> _FileContent | _Folder | None:
        node: _FileContent | _Folder | None = self._root
        for name in _split_path(path):
            if not isinstance(node, _Folder):
                return None
            node = node.names.get(name)
        return node

    def _folder(self, path: str) -> _Folder:
        node = self._find(path)
        if node is None:
            raise _no_such(path)
        if not isinstance(node, _Folder):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _content(self, path: str) -> _FileContent:
        node = self._find(path)
        if node is None:
            raise _no_such(path)
        if isinstance(node, _Folder):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def _parent(self, path: str) -> tuple[_Folder, str]:
        *folders, name = _split_path(path)
        return self._folder("/".join(folders)), name


def _survivor(folder: _Folder, chance: random.Random, keep: float, seen: dict[int, _FileContent | _Folder]) -> _Folder:
    """Return the folder after a power cut.

    `seen` maps old nodes to their survivors: a node may survive under two names, an old and a new one, and must stay
    one node.
    """
    names = dict(folder.flushed)
    for change in folder.changes:
        if chance.random() < keep:
            change.apply(names)
    left = _Folder()
    for name, node in names.items():
        if id(node) not in seen:
            if isinstance(node, _Folder):
                seen[id(node)] = _survivor(node, chance, keep, seen)
            else:
                data = _surviving_bytes(node, chance)
                seen[id(node)] = _FileContent(bytearray(data), data)
        left.names[name] = seen[id(node)]
    left.flushed = dict(left.names)
    return left


def _surviving_bytes(content: _FileContent, chance: random.Random) -> bytes:
    before, after = content.flushed, bytes(content.data)
    if before == after:
        return before
    low, high = sorted((len(before), len(after)))
    size = chance.choice((len(before), len(after), chance.randint(low, high)))
    page = chance.choice(PAGE_SIZES)
    keep = chance.choice((0.0, 0.5, 0.95, 1.0))
    same = _common_prefix(before, after)
    data = bytearray(before[:size].ljust(size, b"\0"))
    for start in range(same - same % page, min(size, len(after)), page):
        if chance.random() < keep:
            end = min(start + page, size)
            data[start:end] = after[start:end].ljust(end - start, b"\0")
    return bytes(data)


def _common_prefix(before: bytes, after: bytes) -> int:
    """Return the length of the common prefix."""
    low, high = 0, min(len(before), len(after))
    while low < high:
        middle = (low + high + 1) // 2
        if before[:middle] == after[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _split_path(path: str) -> list[str]:
    return [part for part in posixpath.normpath(path).split("/") if part and part != "."]


def _is_under(path: str, folder: str) -> bool:
    path = posixpath.normpath(path)
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _no_such(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
