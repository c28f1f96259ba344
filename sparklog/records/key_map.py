"""The newest record of each key, in a table of a fixed size per key: what compaction goes by.

A key is known by its SipHash-2-4-128 alone: two keys with the same one would be taken for the same key. With 10^10 keys
that happens by chance once in 10^18 runs, and nobody who writes keys can bring it about, since the hash is keyed with
16 random bytes, others in each run.

A slot takes 24 bytes, or 32 with versions. The table is at most three quarters full, and doubles where it is, up to
`limit_bytes`, which is asked of the system at once but not used before it is needed. So at the limit there is room for
a key in every 32 bytes of it, or 43 with versions.

Records without a key are in nobody's way, and do not survive.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparklog.base.errors import InvalidRecord
from sparklog.records import key_map_kernels as kernels
from sparklog.records.key_map_kernels import Keys

SEED_BYTES = 16
_WORD = 8
_FIRST_SLOTS = 1 << 14
_MOST_SLOTS = (1 << 32) - 1  # what 32 bits of a hash can tell apart
_NO_VERSIONS = np.empty(0, np.int64)
_NO_VERSIONS.flags.writeable = False
Longs = NDArray[np.int64]


class KeyMap:
    """The newest record of each key that was put.

    Of two records of a key the newer is the one with the greater version, if records have any; else, or with the same
    version, the one with the greater offset.
    """

    def __init__(self, limit_bytes: int, seed: bytes, *, versioned: bool = False) -> None:
        """`seed`: 16 random bytes. Raises ValueError where `limit_bytes` has no room for any key."""
        self._seed = np.frombuffer(seed, "<u8", SEED_BYTES // _WORD)
        self._versioned = versioned
        self._width = 4 if versioned else 3
        self._slots, largest = _slots(limit_bytes, self._width * _WORD)
        self._all = np.zeros(largest * self._width, np.uint64)
        self._reach = 0  # the farthest that a slot lies behind where its key's hash points to
        self._hashes = np.empty(2 * kernels.BLOCK, np.uint64)
        self._count = 0

    def __len__(self) -> int:
        """How many keys it has."""
        return self._count

    @property
    def nbytes(self) -> int:
        """What it takes now."""
        return self._table.nbytes

    @property
    def _table(self) -> NDArray[np.uint64]:
        return self._all[: self._slots * self._width]

    def put(self, keys: pa.Array, offsets: Longs, versions: Longs | None = None) -> bool:
        """Note some records, in any order; False where they do not all fit, and then no more of them can be put.

        What is in the map stays there, and putting a record again changes nothing.
        """
        column, longs, ages = self._columns(keys, offsets, versions)
        record = 0
        while True:
            record, self._count, self._reach = kernels.put(
                self._table, self._width, _most(self._slots), self._count, self._reach, column, longs, ages, record,
                self._seed, self._hashes,
            )  # fmt: skip
            if record == kernels.BAD_KEYS:
                raise InvalidRecord("the keys are not where their column says")
            if record == len(longs):
                return True
            if not self._grow():
                return False

    def survives(self, keys: pa.Array, offsets: Longs, versions: Longs | None = None) -> NDArray[np.bool_]:
        """Of each record, whether it has a key, and the map no newer record of that key."""
        column, longs, ages = self._columns(keys, offsets, versions)
        answer = np.empty(len(longs), np.bool_)
        if not kernels.survives(self._table, self._width, column, longs, ages, self._seed, self._hashes, answer):
            raise InvalidRecord("the keys are not where their column says")
        return answer

    def newest_offsets(self) -> Longs:
        """The offsets of the newest records of all keys that were put, in order."""
        offsets = np.empty(self._count, np.int64)
        kernels.newest(self._table, self._width, offsets)
        offsets.sort()
        return offsets

    def _grow(self) -> bool:
        before = self._slots
        if len(self._all) < 2 * before * self._width:
            return False
        beginning = self._table[: min(before, 2 * self._reach + 2) * self._width]
        aside = beginning.copy()
        beginning[:] = 0
        self._slots = 2 * before
        self._reach = kernels.spread(self._table, self._width, before, aside)
        return True

    def _columns(self, keys: pa.Array, offsets: Longs, versions: Longs | None) -> tuple[Keys, Longs, Longs]:
        if (versions is not None) != self._versioned:
            raise ValueError("records of a versioned map have versions, others have none")
        ages = _NO_VERSIONS if versions is None else _read_only(versions)
        if len(keys) != len(offsets) or (versions is not None and len(ages) != len(offsets)):
            raise ValueError(f"{len(keys)} keys, {len(offsets)} offsets")
        return keys_of(keys), _read_only(offsets), ages


def hashes_of(keys: pa.Array, seed: bytes) -> NDArray[np.uint64]:
    """The SipHash-2-4-128 of each key, as two little-endian words; of a null, that of no bytes."""
    hashes = np.empty(2 * len(keys), np.uint64)
    if not kernels.hash_keys(keys_of(keys), np.frombuffer(seed, "<u8", SEED_BYTES // _WORD), hashes):
        raise InvalidRecord("the keys are not where their column says")
    return hashes.reshape(-1, 2)


def keys_of(keys: pa.Array) -> Keys:
    """A column of binary or text as the kernels take it."""
    if keys.type not in (pa.binary(), pa.string()):
        keys = keys.cast(pa.binary())
    validity, starts, data = keys.buffers()
    first = keys.offset
    numbers = np.frombuffer(starts, np.int32)[first : first + len(keys) + 1] if len(keys) else np.zeros(1, np.int32)
    return Keys(
        starts=_read_only(numbers, np.int32),
        data=_read_only(np.frombuffer(data or b"", np.uint8), np.uint8),
        validity=_read_only(np.frombuffer(validity if keys.null_count else b"", np.uint8), np.uint8),
        validity_offset=first,
    )


def _read_only(array: Any, kind: Any = np.int64) -> Any:
    """A view of the array that cannot be written to: kernels are compiled for that alone."""
    view = np.ascontiguousarray(array, kind).view()
    view.flags.writeable = False
    return view


def _slots(limit_bytes: int, slot_bytes: int) -> tuple[int, int]:
    """How many slots the table has at first, and in the end, after doubling some times."""
    first = min(limit_bytes // slot_bytes, _MOST_SLOTS)
    doublings = 0
    while first >= 2 * _FIRST_SLOTS:
        first //= 2
        doublings += 1
    if _most(first) < 1:
        raise ValueError(f"{limit_bytes} bytes have no room for a key")
    return first, first << doublings


def _most(slots: int) -> int:
    """How many keys a table takes before it has to grow."""
    return 3 * slots // 4
