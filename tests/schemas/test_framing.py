"""The ids of schemas, in payloads and headers, as Confluent's serializers write them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.records.schema import HEADERS_TYPE
from sparklog.schemas.framing import HEADERS, NO_FRAME, NULL, SchemaId, frame_of, unframe, with_headers

pytestmark = pytest.mark.slow

GUID = UUID("01234567-89ab-cdef-0123-456789abcdef")
VALUE = HEADERS["value"]
IDS = st.integers(0, 3) | st.sampled_from([2**31, 2**32 - 1]) | st.just(GUID) | st.uuids()


def seen(column: pa.Array, headers: pa.Array | None = None) -> list[tuple[SchemaId | int, bytes]]:
    """The id, or why there is none, and the body of each row."""
    framed = unframe(column, headers, VALUE)
    return [
        (framed.ids[which] if which >= 0 else which, framed.data[start:end].tobytes())
        for which, start, end in zip(framed.which.tolist(), framed.starts, framed.ends, strict=True)
    ]


def header_lists(rows: list[Any]) -> pa.Array:
    return pa.array([[{"key": key, "value": value} for key, value in row] for row in rows], HEADERS_TYPE)


@given(st.lists(st.none() | st.binary(max_size=6) | st.tuples(IDS, st.binary(max_size=6))), st.integers(0, 3))
def test_the_payload_names_its_schema(rows: list[Any], skipped: int) -> None:
    payloads = [frame_of(row[0]) + row[1] if isinstance(row, tuple) else row for row in rows]
    expected = [(NULL, b"") if row is None else row if isinstance(row, tuple) else _without(row) for row in rows]
    assert seen(pa.array(payloads, pa.binary()).slice(skipped)) == expected[skipped:]


def _without(payload: bytes) -> tuple[SchemaId | int, bytes]:
    if len(payload) >= 5 and payload[0] == 0:
        return int.from_bytes(payload[1:5], "big"), payload[5:]
    return NO_FRAME, payload


@given(st.lists(st.tuples(IDS, st.binary(max_size=6))), st.integers(0, 3))
def test_the_header_names_the_schema_before_the_payload(rows: list[Any], skipped: int) -> None:
    headers = header_lists([[("other", b"x"), (VALUE, frame_of(each)), ("other", None)] for each, _ in rows])
    payloads = pa.array([b"\0\0\0\0\1" + body for _, body in rows], pa.binary())
    expected = [(each, b"\0\0\0\0\1" + body) for each, body in rows]
    assert seen(payloads.slice(skipped), headers.slice(skipped)) == expected[skipped:]


NAMES = st.sampled_from(["a", "b", VALUE])
OWN = st.none() | st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=3)), max_size=3)


@given(st.lists(st.tuples(OWN, st.booleans(), st.booleans())), st.integers(0, 3))
def test_headers_are_added_behind_those_of_a_row(table: list[Any], skipped: int) -> None:
    own = pa.array([row and [{"key": key, "value": value} for key, value in row] for row, _, _ in table], HEADERS_TYPE)
    added = {
        VALUE: (frame_of(GUID), np.array([there for _, there, _ in table], bool)[skipped:]),
        "more": (b"m", np.array([there for _, _, there in table], bool)[skipped:]),
    }
    found = with_headers(own.slice(skipped), added)
    found.validate(full=True)
    assert [[(each["key"], each["value"]) for each in row] for row in found.to_pylist()] == [
        [*(row or ()), *([(VALUE, frame_of(GUID))] if first else []), *([("more", b"m")] if second else [])]
        for row, first, second in table[skipped:]
    ]


def test_rows_with_and_without_a_header_stand_side_by_side() -> None:
    headers = header_lists(
        [
            [],
            [(VALUE, frame_of(7)), (VALUE, frame_of(GUID))],  # the last counts
            [(VALUE, None)],
            [(VALUE, b"\x05")],
            [(HEADERS["key"], frame_of(9))],
            [(VALUE, frame_of(GUID))],
        ]
    )
    payloads = [b"\0\0\0\0\1a", b"b", b"\0\0\0\0\2c", b"\0\0\0\0\1d", b"e", None]
    assert seen(pa.array(payloads, pa.binary()), headers) == [
        (1, b"a"), (GUID, b"b"), (2, b"c"), (1, b"d"), (NO_FRAME, b"e"), (NULL, b"")
    ]  # fmt: skip


def test_many_distinct_ids_cost_no_more_than_sorting_them() -> None:
    ids = np.random.default_rng(1).permutation(200_000)
    framed = unframe(pa.array([frame_of(each) for each in ids.tolist()], pa.binary()), None, VALUE)
    assert [framed.ids[which] for which in framed.which.tolist()] == ids.tolist()
