"""What happens when the disk under a log fails: the log goes offline, at once and for good.

An OSError inside a `with guard:` block becomes KafkaStorageError, is told to the owner (who takes every other log of
that directory offline too), and from then on every such block refuses to begin. A log whose writes fail must not go
on: what is on the disk is no longer known.

Errors that are not the disk's (too many open files, no memory, a file that somebody removed) only fail the one
operation. So does a disk without room, where the log is as it was before: `Room.needed` around a write to the log says
so, and `without_room` around one beside it. A log that cannot be made what it was has failed, whatever the error
(`undoing`).
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator
from types import TracebackType

from sparklog.base.errors import KafkaStorageError

NOT_THE_DISK = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.ENOENT})
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


@contextlib.contextmanager
def without_room(what: str) -> Iterator[None]:
    """Around what is written beside a log, and can be done without: a full disk is a KafkaStorageError here at once."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise KafkaStorageError(f"no room for {what}: {error}") from error


@contextlib.contextmanager
def undoing(what: str) -> Iterator[None]:
    """Around what takes back a write that has failed: where that fails too, it is the disk that has."""
    try:
        yield
    except OSError as error:
        raise OSError(errno.EIO, f"{what} cannot be taken back: {error}") from error


class DiskGuard:
    """Turns one log's OSErrors into KafkaStorageError. May be entered from several threads, and again inside itself."""

    __slots__ = ("_folder", "_on_failure", "offline")

    def __init__(self, folder: str, on_failure: Callable[[OSError], None] | None = None) -> None:
        self.offline = ""
        """Why every operation is refused; empty while none is."""
        self._folder = folder
        self._on_failure = on_failure

    def __enter__(self) -> None:
        if self.offline:
            raise KafkaStorageError(f"{self._folder}: {self.offline}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise self.failed(error) from error

    def failed(self, error: OSError) -> KafkaStorageError:
        """What to raise for `error`, once its consequences have been drawn."""
        if error.errno not in NOT_THE_DISK and not self.offline:
            self.offline = f"the disk failed: {error}"
            if self._on_failure:
                self._on_failure(error)
        return KafkaStorageError(f"{self._folder}: {error}")
