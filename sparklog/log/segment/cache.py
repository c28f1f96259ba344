"""A bounded LRU cache of what closed segments hold in memory: loaded indexes and open files.

A broker holds thousands of segments and reads few of them. A segment opens its file and loads its indexes when it is
first read; this cache makes it release them when others need the room. A release only drops references: the last reader
closes the file, so a slice that is being read stays readable.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Protocol

MAX_SEGMENTS = 512
MAX_INDEX_BYTES = 64 << 20


class Releasable(Protocol):
    """A segment that can release its file and indexes, and load them again later."""

    def release(self) -> None:
        """Drop the file and indexes. The cache calls it on any thread that reads."""
        ...


class SegmentCache:
    """The closed segments that have files or indexes loaded. Thread-safe."""

    def __init__(self, max_segments: int = MAX_SEGMENTS, max_index_bytes: int = MAX_INDEX_BYTES) -> None:
        self._max_segments = max_segments
        self._max_index_bytes = max_index_bytes
        self._used: OrderedDict[Releasable, int] = OrderedDict()
        self._index_bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._used)

    def use(self, segment: Releasable, index_bytes: int) -> None:
        """Mark `segment` as just read, with `index_bytes` of loaded indexes; may release other segments."""
        released = []
        with self._lock:
            self._index_bytes += index_bytes - self._used.pop(segment, 0)
            self._used[segment] = index_bytes
            while len(self._used) > 1 and (
                len(self._used) > self._max_segments or self._index_bytes > self._max_index_bytes
            ):
                oldest, size = self._used.popitem(last=False)
                self._index_bytes -= size
                released.append(oldest)
        for each in released:
            each.release()

    def forget(self, segment: Releasable) -> None:
        """Remove `segment`, which holds nothing any more or is written again."""
        with self._lock:
            self._index_bytes -= self._used.pop(segment, 0)
