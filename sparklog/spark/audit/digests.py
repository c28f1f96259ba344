"""Digests of a replica's batches, slice by slice, to compare with those of other replicas.

A slice is `SLICE_OFFSETS` offsets. It is cut further where any replica's range of comparison begins or ends (`cuts`),
so that each replica has all or nothing of it. Its digest is the exclusive-or of one hash for each batch, of offsets,
leader epoch, size and CRC. So a slice that lies in several segments is combined from its parts, and replicas whose
segments end at different offsets can be compared.

A damaged batch counts by its header: a wrong CRC is a finding of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sparklog.records import header_kernels as h
from sparklog.spark.audit.walk import Ints

SLICE_OFFSETS = 1 << 16


class DigestSlice(NamedTuple):
    """Batches whose base offset lies in slice number `number`, and whose last offset lies after `cut` of the cuts."""

    number: int
    cut: int
    batches: int
    digest: int
    first_offset: int
    last_offset: int


class SegmentDigests:
    """The digests of one segment, of the batches from `offset_from` on that end below `offset_to`."""

    def __init__(self, offset_from: int, offset_to: int, cuts: tuple[int, ...]) -> None:
        self._from = offset_from
        self._to = offset_to
        self._cuts = np.array(cuts, np.int64)
        self._slices: dict[tuple[int, int], DigestSlice] = {}

    def add(self, table: Ints) -> None:
        """Add a table of batches, in log order; those outside of the range of comparison do not count."""
        base, last = table[:, h.BASE_OFFSET], table[:, h.LAST_OFFSET]
        inside = (base >= self._from) & (last < self._to)
        table, base, last = table[inside], base[inside], last[inside]
        if not len(table):
            return
        numbers, cuts = base // SLICE_OFFSETS, np.searchsorted(self._cuts, last, side="right")
        starts = np.flatnonzero(np.concatenate([[True], (np.diff(numbers) != 0) | (np.diff(cuts) != 0)]))
        digests = np.bitwise_xor.reduceat(_hash_batches(table), starts)
        ends = [*starts[1:].tolist(), len(table)]
        for start, stop, digest in zip(starts.tolist(), ends, digests.tolist(), strict=True):
            self._merge(
                DigestSlice(
                    int(numbers[start]), int(cuts[start]), stop - start, digest, int(base[start]), int(last[stop - 1])
                )
            )

    def slices(self) -> list[DigestSlice]:
        """Return the slices of all batches that were added."""
        return list(self._slices.values())

    def _merge(self, part: DigestSlice) -> None:
        key = (part.number, part.cut)
        known = self._slices.get(key)
        if known is not None:
            part = DigestSlice(
                *key,
                known.batches + part.batches,
                known.digest ^ part.digest,
                min(known.first_offset, part.first_offset),
                max(known.last_offset, part.last_offset),
            )
        self._slices[key] = part


def _hash_batches(table: Ints) -> Ints:
    """Return a 64-bit hash of each batch that depends on every bit of its identifying columns (splitmix64)."""
    state = np.zeros(len(table), np.uint64)
    for column in (h.BASE_OFFSET, h.LAST_OFFSET, h.LEADER_EPOCH, h.SIZE, h.CRC):
        state ^= table[:, column].astype(np.uint64)
        state += np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return state.view(np.int64)
