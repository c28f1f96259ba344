"""The newest record of each key."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.base.errors import InvalidRecord
from sparklog.records import key_map
from sparklog.records.key_map import KeyMap, hashes_of

SEED = bytes(range(16))
MIB = 1024 * 1024

keys = st.none() | st.sampled_from([b"", b"a", b"b"]) | st.binary(max_size=20)
rows = st.lists(st.tuples(keys, st.integers(0, 40), st.integers(-3, 3)), max_size=30)


def columns(records: list[tuple[bytes | None, int, int]]) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """Keys, offsets and versions; the keys as a slice, as they come from a larger table."""
    padded = pa.array([b"before", None, *(key for key, _, _ in records), b"after"], pa.binary())
    offsets = np.array([offset for _, offset, _ in records], np.int64)
    versions = np.array([version for _, _, version in records], np.int64)
    return padded.slice(2, len(records)), offsets, versions


# Hashes of the message 00 01 02 …, with the length given first, under the key 00 01 … 0f: from the authors' own code,
# https://github.com/veorq/SipHash/blob/master/vectors.h
@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
        (7, "a1f1ebbed8dbc153c0b84aa61ff08239"),
        (8, "3b62a9ba6258f5610f83e264f31497b4"),
        (15, "5493e99933b0a8117e08ec0f97cfc3d9"),
        (63, "5150d1772f50834a503e069a973fbd7c"),
    ],
)
def test_hashes_are_those_of_siphash(size: int, expected: str) -> None:
    message = bytes(range(size))
    column = pa.array([message, message, b"x" * 9], pa.binary())  # with bytes behind it, and where it ends the data
    for hashes in (hashes_of(column, SEED), hashes_of(column.slice(1, 1), SEED), hashes_of(pa.array([message]), SEED)):
        assert hashes[0].tobytes().hex() == expected


@pytest.mark.slow
@settings(max_examples=50)
@given(rows, rows, st.booleans())
def test_the_newest_record_of_each_key_survives(
    first: list[tuple[bytes | None, int, int]], second: list[tuple[bytes | None, int, int]], versioned: bool
) -> None:
    newest: dict[bytes, tuple[int, int]] = {}
    for key, offset, version in first:
        if key is not None:
            age = (version if versioned else 0, offset)
            newest[key] = max(age, newest.get(key, age))
    a_map = KeyMap(MIB, SEED, versioned=versioned)
    for part in (first[:7], first[7:]):
        column, offsets, versions = columns(part)
        assert a_map.put(column, offsets, versions if versioned else None)
    assert len(a_map) == len(newest)
    assert a_map.newest_offsets().tolist() == sorted(offset for _, offset in newest.values())
    for records in (first, second):
        column, offsets, versions = columns(records)
        survives = a_map.survives(column, offsets, versions if versioned else None)
        assert survives.tolist() == [
            key is not None and (version if versioned else 0, offset) >= newest.get(key, (-(2**63), 0))
            for key, offset, version in records
        ]


def numbered(count: int, first: int = 0) -> pa.Array:
    return pa.array([b"%d" % number for number in range(first, first + count)], pa.binary())


def test_a_map_grows_to_its_limit_and_loses_nothing_when_it_is_full() -> None:
    limit = MIB
    for versioned, room in ((False, limit // 32 - 100), (True, limit * 3 // 128 - 100)):
        a_map = KeyMap(limit, os.urandom(16), versioned=versioned)
        smallest = a_map.nbytes
        ages = np.zeros(room, np.int64) if versioned else None
        assert a_map.put(numbered(room), np.arange(room), ages)
        assert smallest < limit - 1000 < a_map.nbytes <= limit
        more = np.arange(room, 2 * room)
        assert not a_map.put(numbered(room, room), more, ages)
        assert not a_map.put(pa.array([b"one more"]), np.array([2 * room]), None if ages is None else ages[:1])
        assert a_map.survives(numbered(room), np.arange(room), ages).all()
        assert not a_map.survives(numbered(room), np.arange(room) - 1, ages).any()
        assert a_map.put(numbered(room), more, ages)  # newer records of known keys need no more room


@pytest.mark.parametrize("versioned", [False, True])
def test_a_map_that_doubles_often_loses_nothing(monkeypatch: pytest.MonkeyPatch, versioned: bool) -> None:
    monkeypatch.setattr(key_map, "_FIRST_SLOTS", 3)
    keys, offsets = numbered(300), np.arange(300)
    for seed in range(60):  # each with other keys that share their places
        small = KeyMap(20_000, seed.to_bytes(16, "big"), versioned=versioned)
        for start in range(0, 300, 25):
            part = slice(start, start + 25)
            assert small.put(keys[part], offsets[part], offsets[part] if versioned else None)
            known = offsets[: start + 25]
            for less, survives in ((0, True), (1, False)):
                older = small.survives(keys[: start + 25], known - less, known - less if versioned else None)
                assert (older == survives).all()
        assert small.newest_offsets().tolist() == offsets.tolist()


def test_keys_may_come_in_any_column_of_bytes() -> None:
    for kind in (pa.binary(), pa.string(), pa.large_binary(), pa.binary(1)):
        column = pa.array(["a", None, "b", "a"], kind)
        a_map = KeyMap(MIB, SEED)
        assert a_map.put(column, np.arange(4))
        assert a_map.survives(pa.array([b"a", b"b", b"a"]), np.array([0, 2, 3])).tolist() == [False, True, True]


def test_a_limit_without_room_for_a_key_is_refused() -> None:
    with pytest.raises(ValueError, match="no room"):
        KeyMap(47, SEED)


def test_versions_belong_to_versioned_maps() -> None:
    one = np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="versions"):
        KeyMap(MIB, SEED).put(pa.array([b"k"]), one, one)
    with pytest.raises(ValueError, match="versions"):
        KeyMap(MIB, SEED, versioned=True).put(pa.array([b"k"]), one)
    with pytest.raises(ValueError, match="2 keys, 1 offsets"):
        KeyMap(MIB, SEED).put(pa.array([b"k", b"l"]), one)


@pytest.mark.parametrize("starts", [[0, 9], [-1, 2], [3, 1], [0, 2**31 - 1]])
def test_keys_outside_their_data_are_refused(starts: list[int]) -> None:
    numbers = np.array([0, 3], np.int32)
    bad = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(numbers), pa.py_buffer(b"key")])
    numbers[:] = starts  # Arrow has looked at them before
    a_map = KeyMap(MIB, SEED)
    assert a_map.put(pa.array([b"k"]), np.zeros(1, np.int64))
    for use in (a_map.put, a_map.survives):
        with pytest.raises(InvalidRecord):
            use(bad, np.zeros(1, np.int64))
    assert len(a_map) == 1
