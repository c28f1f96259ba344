"""Finds where a follower's closed segments differ from its leader's.

Both logs hold the same records, except those that a cleaner has removed. So the comparison goes from each offset where
both logs begin a segment to the next, and all segments between two such offsets are replaced together:

    leader      0         20             50        60
    follower    0    10   20   30   40   50        60
                └ differ ┘└─── differ ──┘└ the same?

A border of only one log lies inside a difference. Segments before the first common border or after the last are not
compared: retention deletes the former, and the latter are compared once they are closed.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from sparklog.log.description import SegmentSum


class Difference(Struct, frozen=True, kw_only=True):
    """Segments of the follower, and those of the leader that replace them; both cover the same offsets."""

    own: tuple[SegmentSum, ...]
    leaders: tuple[SegmentSum, ...]


class Comparison(Struct, frozen=True, kw_only=True):
    differences: tuple[Difference, ...]
    end: int
    """The offset up to which the logs were compared; -1: they have no common border."""


def compare(own: Sequence[SegmentSum], leaders: Sequence[SegmentSum]) -> Comparison:
    """Return where two lists of adjacent segments differ; each has the oldest first."""
    borders = sorted(_borders(own) & _borders(leaders))
    mine, theirs = _by_range(own, borders), _by_range(leaders, borders)
    differences = (
        Difference(own=one, leaders=other) for one, other in zip(mine, theirs, strict=True) if not _are_same(one, other)
    )
    return Comparison(differences=tuple(differences), end=borders[-1] if borders else -1)


def _borders(segments: Sequence[SegmentSum]) -> set[int]:
    return {offset for each in segments for offset in (each.base_offset, each.next_offset)}


def _by_range(segments: Sequence[SegmentSum], borders: Sequence[int]) -> list[tuple[SegmentSum, ...]]:
    """Return the segments between each border and the next."""
    ranges: list[list[SegmentSum]] = [[] for _ in borders[1:]]
    number = 0
    for each in segments:
        if not borders or each.base_offset < borders[0] or each.next_offset > borders[-1]:
            continue
        while each.base_offset >= borders[number + 1]:
            number += 1
        ranges[number].append(each)
    return [tuple(found) for found in ranges]


def _are_same(own: tuple[SegmentSum, ...], leaders: tuple[SegmentSum, ...]) -> bool:
    return len(own) == len(leaders) and all(map(SegmentSum.is_as, own, leaders))
