"""Disk failure of a log: the log goes offline at once, until the broker restarts.

An OSError inside a `with guard:` block becomes KafkaStorageError and is reported to the owner, which takes all other
logs of that directory offline too. Later blocks raise KafkaStorageError at their beginning. A log whose writes fail
must stop, because the state on the disk is no longer known.

Errors not caused by the disk (too many open files, no memory, a file removed by someone else) only fail the operation.
So does a full disk, if the log stays unchanged: `FreeSpace.retriable_write` wraps such a write to the log,
`without_room` a write beside it. A log that cannot be restored to its former state has failed, whatever the error
(`undoing`). A log that only a restart restores, on a disk that works, goes offline alone (`DiskGuard.stop_alone`).
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
    """Wrap an optional write beside a log: turn a full disk into KafkaStorageError instead of a disk failure."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise KafkaStorageError(f"no room for {what}: {error}") from error


@contextlib.contextmanager
def undoing(what: str) -> Iterator[None]:
    """Wrap the undoing of a failed write: turn an OSError in it into EIO, which counts as a disk failure."""
    try:
        yield
    except OSError as error:
        raise OSError(errno.EIO, f"{what} cannot be undone: {error}") from error


class DiskGuard:
    """A context manager that turns one log's OSErrors into KafkaStorageError. Thread-safe and reentrant."""

    __slots__ = ("_folder", "_on_failure", "offline", "on_stop")

    def __init__(
        self,
        folder: str,
        on_failure: Callable[[OSError], None] | None = None,
        on_stop: Callable[[str], None] | None = None,
    ) -> None:
        """on_failure: called when the disk fails. on_stop: called when the log stops alone, with the reason."""
        self.offline = ""
        """The reason why every operation is refused; empty while the log is online."""
        self._folder = folder
        self._on_failure = on_failure
        self.on_stop = on_stop

    def __enter__(self) -> None:
        if self.offline:
            raise KafkaStorageError(f"{self._folder}: {self.offline}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise self.failed(error) from error

    def go_offline(self, reason: str) -> bool:
        """Refuse every operation from now on. Return False if another reason is already there, which stays."""
        if self.offline:
            return False
        self.offline = reason
        return True

    def stop_alone(self, reason: str) -> None:
        """Refuse every operation until the broker restarts, and report this log, though its disk works."""
        if self.go_offline(reason) and self.on_stop:
            self.on_stop(reason)

    def stop_halfway(self, what: str, error: OSError) -> None:
        """Stop alone, because `error` has left a change of the log's files halfway."""
        self.stop_alone(f"{what} has stopped halfway, and waits for a restart: {error}")

    @contextlib.contextmanager
    def undivided(self, what: str) -> Iterator[None]:
        """Wrap a change of several files: a log that an error leaves halfway goes offline alone."""
        try:
            yield
        except OSError as error:
            if error.errno in NOT_THE_DISK | NO_ROOM:
                self.stop_halfway(what, error)
            raise

    def go_online(self) -> None:
        """Allow operations again, after the operation failed for which `go_offline` was called."""
        self.offline = ""

    def failed(self, error: OSError) -> KafkaStorageError:
        """Return the error to raise for `error`; a disk failure first takes the log offline and is reported."""
        if error.errno not in NOT_THE_DISK and self.go_offline(f"the disk failed: {error}") and self._on_failure:
            self._on_failure(error)
        return KafkaStorageError(f"{self._folder}: {self.offline or error}")
