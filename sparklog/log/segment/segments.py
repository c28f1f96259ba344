"""The list of a log's segments, oldest first. It is replaced as a whole, so that readers see a consistent state."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from operator import attrgetter

from sparklog.log.retention import SegmentFacts
from sparklog.log.segment.segment import Segment

_BASE_OFFSET = attrgetter("base_offset")


class Segments:
    """The segments of a log, never empty once the log is open. One thread at a time may change them; any may read."""

    __slots__ = ("items",)

    def __init__(self, items: Iterable[Segment] = ()) -> None:
        self.items = tuple(items)
        """The present segments, as a tuple that never changes."""

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.items)

    @property
    def last(self) -> Segment:
        """The active segment."""
        return self.items[-1]

    def since(self, offset: int) -> tuple[Segment, ...]:
        """Return the last segment that begins at or below `offset` and all after it; all segments if there is none."""
        items = self.items
        if items[-1].base_offset <= offset:
            return items[-1:]
        return items[max(0, bisect_right(items, offset, key=_BASE_OFFSET) - 1) :]

    def facts(self, end_offset: int) -> list[SegmentFacts]:
        """Return the properties of each segment that retention needs. Raises OSError."""
        items = self.items
        ends = [*(segment.base_offset for segment in items[1:]), end_offset]
        return [
            SegmentFacts(next_offset=end, size_bytes=each.size_bytes, largest_timestamp_ms=each.largest.timestamp_ms)
            for each, end in zip(items, ends, strict=True)
        ]

    def add(self, segment: Segment) -> None:
        """Add the new active segment, which begins above all others."""
        self.items = (*self.items, segment)

    def remove(self, gone: Iterable[Segment]) -> None:
        """Remove these segments; those that are not in the list are ignored."""
        out = set(gone)
        self.items = tuple(segment for segment in self.items if segment not in out)

    def replace(self, gone: Iterable[Segment], new: Iterable[Segment]) -> None:
        """Replace the adjacent segments `gone` with `new`."""
        out = set(gone)
        kept = (*(each for each in self.items if each not in out), *new)
        self.items = tuple(sorted(kept, key=_BASE_OFFSET))

    def reset(self, segment: Segment) -> None:
        """Make `segment` the only one."""
        self.items = (segment,)
