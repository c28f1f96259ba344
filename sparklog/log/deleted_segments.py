"""Segments removed from the log, whose files stay for file.delete.delay.ms so that current readers can continue."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from sparklog.base.clock import Clock
from sparklog.log.files import DELETED
from sparklog.log.flush import Flusher
from sparklog.log.segment.segment import Segment
from sparklog.log.state import LogState


class DeletedSegments:
    """Removed segments. `discard` renames their files to `.deleted`; `delete_expired` removes them after the delay."""

    def __init__(self, state: LogState, flusher: Flusher, clock: Clock) -> None:
        self._state = state
        self._flusher = flusher
        self._clock = clock
        self._expiring: deque[tuple[int, Segment]] = deque()

    def discard(self, gone: Iterable[Segment]) -> None:
        """Mark the files of removed segments as deleted. Raises OSError."""
        due_ms = self._clock.monotonic_ms() + self._state.config.file_delete_delay_ms
        try:
            for segment in gone:
                segment.rename(DELETED)
                self._expiring.append((due_ms, segment))
        finally:
            self._flusher.names_changed()

    def delete_expired(self, now_ms: int) -> int:
        """See `Log.delete_expired`."""
        count = 0
        with self._state.files_lock, self._state.disk:
            while self._expiring and self._expiring[0][0] <= now_ms:
                self._expiring[0][1].remove()
                self._expiring.popleft()
                count += 1
        return count

    def leave_behind(self, folder: str) -> None:
        """Leave the files in `folder`, which is deleted as a whole, because the log has switched to a copy."""
        for _, segment in self._expiring:
            segment.change_directory(folder)
        self._expiring.clear()

    def move(self, folder: str) -> None:
        """Update the segments' folder after it was renamed."""
        for _, segment in self._expiring:
            segment.move(folder)
