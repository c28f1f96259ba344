"""What closed segments keep in memory, bounded: loaded indexes and open files, least recently used out first.

A broker holds thousands of segments and reads few of them. A segment opens its file and loads its indexes when it is
first read; this cache tells it to let go of them when others need the room. Letting go only drops references: a file is
closed by its last reader, so a slice that is being read stays readable.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Protocol

MAX_SEGMENTS = 512
MAX_INDEX_BYTES = 64 << 20


class Releasable(Protocol):
    """Something that can let go of what it loaded, and load it again later."""

    def release(self) -> None: ...


class SegmentCache:
    """The closed segments that have something loaded. Safe to use from several threads."""

    def __init__(self, max_segments: int = MAX_SEGMENTS, max_index_bytes: int = MAX_INDEX_BYTES) -> None:
        self._max_segments = max_segments
        self._max_index_bytes = max_index_bytes
        self._used: OrderedDict[Releasable, int] = OrderedDict()
        self._index_bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._used)

    def use(self, segment: Releasable, index_bytes: int) -> None:
        """`segment` is being read and holds that much of indexes; others may have to let go."""
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
        """`segment` holds nothing any more, or is written again."""
        with self._lock:
            self._index_bytes -= self._used.pop(segment, 0)
