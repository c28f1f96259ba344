"""The newest record of each key, for compaction, in a table of a fixed size per key.

A key is identified only by its SipHash-2-4-128: two keys with the same hash would count as one. With 10^10 keys that
happens by chance once in 10^18 runs. Producers cannot cause it: the hash is keyed with 16 random bytes, other ones in
each run.

A slot takes 24 bytes, or 32 with versions. The table is at most three quarters full and doubles in place, up to
`limit_bytes`. That memory is reserved at once, but used only when needed. So at the limit each key takes 32 bytes, or
43 with versions.

Records without a key take no slot, and do not survive.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparklog.base.errors import InvalidRecord
from sparklog.records import key_map_kernels as kernels
from sparklog.records.key_map_kernels import KeyColumn

SEED_BYTES = 16
_WORD = 8
_FIRST_SLOTS = 1 << 14
_MOST_SLOTS = (1 << 32) - 1  # 32 bits of a hash address a slot
_NO_VERSIONS = np.empty(0, np.int64)
_NO_VERSIONS.flags.writeable = False
Longs = NDArray[np.int64]


class KeyMap:
    """The newest record of each key that was put.

    The newer of two records of a key is the one with the greater version, if records have versions; without versions,
    or with equal ones, the one with the greater offset.
    """

    def __init__(self, limit_bytes: int, seed: bytes, *, versioned: bool = False) -> None:
        """`seed`: 16 random bytes. Raises ValueError if `limit_bytes` is too small for one key."""
        self._seed = np.frombuffer(seed, "<u8", SEED_BYTES // _WORD)
        self._versioned = versioned
        self._width = 4 if versioned else 3
        self._slots, largest = _slots(limit_bytes, self._width * _WORD)
        self._all = np.zeros(largest * self._width, np.uint64)
        self._reach = 0  # greatest distance of a slot behind its key's home, in slots
        self._hashes = np.empty(2 * kernels.BLOCK, np.uint64)
        self._count = 0

    def __len__(self) -> int:
        """Number of keys."""
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes that the table uses now."""
        return self._table.nbytes

    @property
    def _table(self) -> NDArray[np.uint64]:
        return self._all[: self._slots * self._width]

    def put(self, keys: pa.Array, offsets: Longs, versions: Longs | None = None) -> bool:
        """Put records, in any order; return False if the map is full before the last one.

        Records put before stay in the map, and putting a record again changes nothing. Raises InvalidRecord if the keys
        are outside their column, and ValueError for different lengths, or missing or unexpected versions.
        """
        column, longs, ages = self._columns(keys, offsets, versions)
        record = 0
        while True:
            record, self._count, self._reach = kernels.put_keys(
                self._table, self._width, _max_keys(self._slots), self._count, self._reach, column, longs, ages, record,
                self._seed, self._hashes,
            )  # fmt: skip
            if record == kernels.BAD_KEYS:
                raise InvalidRecord("the keys are not where their column says")
            if record == len(longs):
                return True
            if not self._grow():
                return False

    def survives(self, keys: pa.Array, offsets: Longs, versions: Longs | None = None) -> NDArray[np.bool_]:
        """Return for each record whether it has a key and the map no newer record of it. Raises as `put` does."""
        column, longs, ages = self._columns(keys, offsets, versions)
        answer = np.empty(len(longs), np.bool_)
        if not kernels.find_survivors(self._table, self._width, column, longs, ages, self._seed, self._hashes, answer):
            raise InvalidRecord("the keys are not where their column says")
        return answer

    def newest_offsets(self) -> Longs:
        """Return the offsets of the newest records of all keys, sorted."""
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

    def _columns(self, keys: pa.Array, offsets: Longs, versions: Longs | None) -> tuple[KeyColumn, Longs, Longs]:
        if (versions is not None) != self._versioned:
            raise ValueError("records of a versioned map have versions, others have none")
        ages = _NO_VERSIONS if versions is None else _read_only(versions)
        if len(keys) != len(offsets) or (versions is not None and len(ages) != len(offsets)):
            raise ValueError(f"{len(keys)} keys, {len(offsets)} offsets")
        return keys_of(keys), _read_only(offsets), ages


def hashes_of(keys: pa.Array, seed: bytes) -> NDArray[np.uint64]:
    """Return the SipHash-2-4-128 of each key as two little-endian words, shape (keys, 2); a null hashes as no bytes."""
    hashes = np.empty(2 * len(keys), np.uint64)
    if not kernels.hash_column(keys_of(keys), np.frombuffer(seed, "<u8", SEED_BYTES // _WORD), hashes):
        raise InvalidRecord("the keys are not where their column says")
    return hashes.reshape(-1, 2)


def keys_of(keys: pa.Array) -> KeyColumn:
    """Return a column of binary or text in the kernels' form."""
    if keys.type not in (pa.binary(), pa.string()):
        keys = keys.cast(pa.binary())
    validity, starts, data = keys.buffers()
    first = keys.offset
    numbers = np.frombuffer(starts, np.int32)[first : first + len(keys) + 1] if len(keys) else np.zeros(1, np.int32)
    return KeyColumn(
        starts=_read_only(numbers, np.int32),
        data=_read_only(np.frombuffer(data or b"", np.uint8), np.uint8),
        validity=_read_only(np.frombuffer(validity if keys.null_count else b"", np.uint8), np.uint8),
        validity_offset=first,
    )


def _read_only(array: Any, kind: Any = np.int64) -> Any:
    """Return a read-only view of the array, the only kind for which kernels are compiled."""
    view = np.ascontiguousarray(array, kind).view()
    view.flags.writeable = False
    return view


def _slots(limit_bytes: int, slot_bytes: int) -> tuple[int, int]:
    """Return the number of slots at first, and at most after doublings."""
    first = min(limit_bytes // slot_bytes, _MOST_SLOTS)
    doublings = 0
    while first >= 2 * _FIRST_SLOTS:
        first //= 2
        doublings += 1
    if _max_keys(first) < 1:
        raise ValueError(f"{limit_bytes} bytes have no room for a key")
    return first, first << doublings


def _max_keys(slots: int) -> int:
    """Return how many keys a table takes before it must grow."""
    return 3 * slots // 4
