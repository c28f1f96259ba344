"""The JSON encoder: Python's parser and our own reader read its output, and errors name types that JSON lacks."""

from __future__ import annotations

import datetime
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.base.errors import SchemaError
from sparklog.schemas import encode_kernels as kernels
from sparklog.schemas.encoding import BadRow
from sparklog.schemas.formats import JsonFormat
from sparklog.schemas.json_encoding import json_encoder
from support.runs.seeds import examples

pytestmark = pytest.mark.slow

MOMENTS = st.datetimes(datetime.datetime(1600, 1, 1), datetime.datetime(2200, 1, 1))
LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float32(), st.floats(width=32, allow_nan=False, allow_infinity=False)),
    (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    (pa.string(), st.text(max_size=20)),
    (pa.decimal128(38, 10), st.decimals(-(10**27), 10**27, places=10)),
    (pa.date32(), st.dates(datetime.date(1, 1, 1))),
    (pa.timestamp("us"), MOMENTS),
    (pa.timestamp("us", "UTC"), MOMENTS.map(lambda each: each.replace(tzinfo=datetime.UTC))),
]
Typed = tuple[pa.DataType, st.SearchStrategy[Any]]


def lists(of: Typed) -> Typed:
    return pa.list_(pa.field("element", of[0])), st.lists(st.none() | of[1], max_size=3)


def structs(fields: list[tuple[str, Typed]]) -> Typed:
    made = pa.struct([pa.field(name, of) for name, (of, _) in fields])
    return made, st.fixed_dictionaries({name: st.none() | values for name, (_, values) in fields})


def fields_of(parts: st.SearchStrategy[Typed]) -> st.SearchStrategy[list[tuple[str, Typed]]]:
    return st.lists(st.tuples(st.text(min_size=1, max_size=5), parts), min_size=1, max_size=4, unique_by=lambda e: e[0])


TYPES: st.SearchStrategy[Typed] = st.recursive(
    st.sampled_from(LEAVES), lambda parts: parts.map(lists) | fields_of(parts).map(structs), max_leaves=6
)


def encoded(of: pa.DataType, values: list[Any]) -> list[bytes | None]:
    return json_encoder(of).encode(pa.array(values, of)).to_pylist()


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_our_own_reader_reads_what_was_written(data: st.DataObject) -> None:
    of, values = structs(data.draw(fields_of(TYPES)))
    column = pa.array(data.draw(st.lists(st.none() | values, max_size=5)), of)
    bodies = json_encoder(of).encode(column)
    texts = [body and json.loads(body) for body in bodies.to_pylist()]
    assert [text is None for text in texts] == [not each.is_valid for each in column]
    read = [piece for chunk in bodies.chunks for piece in JsonFormat(of).decoder("value").decode(chunk, None)]
    assert not any(piece.faults.any() for piece in read)
    assert [row for piece in read for row in piece.values.to_pylist()] == column.to_pylist()


@given(st.lists(st.text(), max_size=5), st.text(min_size=1))
def test_texts_are_what_pythons_parser_reads(texts: list[str], name: str) -> None:
    bodies = encoded(pa.struct([(name, pa.list_(pa.string()))]), [{name: texts}])
    assert [json.loads(body or b"") for body in bodies] == [{name: texts}]


def test_nulls_are_left_out_but_in_lists() -> None:
    inner = pa.struct([("x", pa.int32()), ("y", pa.string())])
    of = pa.struct([("a", pa.int32()), ("b", inner), ("c", pa.list_(inner))])
    rows = [
        {"a": None, "b": {"x": None, "y": "y"}, "c": [None, {"x": 1, "y": None}, {"x": None, "y": None}]},
        {"a": 1, "b": None, "c": []},
        {},
        None,
    ]
    assert encoded(of, rows) == [b'{"b":{"y":"y"},"c":[null,{"x":1},{}]}', b'{"a":1,"c":[]}', b"{}", None]


def test_moments_are_iso_8601() -> None:
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 60)
    of = pa.struct([("day", pa.date32()), ("local", pa.timestamp("us")), ("at", pa.timestamp("us", "UTC"))])
    (body,) = encoded(of, [{"day": at.date(), "local": at, "at": at.replace(tzinfo=datetime.UTC)}])
    assert body == b'{"day":"2026-01-02","local":"2026-01-02T03:04:05.000060","at":"2026-01-02T03:04:05.000060Z"}'


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        (pa.array([0.0, float("nan")]), kernels.NOT_FINITE),
        (pa.array([0.0, float("inf")], pa.float32()), kernels.NOT_FINITE),
        (pa.array([0.0, -float("inf")]), kernels.NOT_FINITE),
        (pa.array(np.array([0, 10**7], np.int32)).cast(pa.date32()), kernels.NO_YEAR),
        (pa.array(np.array([0, -(2**60)])).cast(pa.timestamp("us")), kernels.NO_YEAR),
        (pa.array(np.array([0, 2**62])).cast(pa.timestamp("us", "UTC")), kernels.NO_YEAR),
        (pa.Array.from_buffers(pa.string(), 2, pa.array([b"a", b"\xff"], pa.binary()).buffers()), kernels.NOT_UTF8),
    ],
)
def test_values_that_json_does_not_have_are_named(values: pa.Array, fault: int) -> None:
    column = pa.StructArray.from_arrays([values], ["a"])
    with pytest.raises(BadRow) as failed:
        json_encoder(column.type).encode(column)
    assert (failed.value.row, failed.value.path, failed.value.reason) == (1, "a", kernels.FAULTS[fault])


def test_types_that_json_does_not_have_are_refused() -> None:
    with pytest.raises(SchemaError, match=r"m\[\]: map<string, int32> cannot be written as JSON; cast this part"):
        json_encoder(pa.struct([("m", pa.list_(pa.map_(pa.string(), pa.int32())))]))
    with pytest.raises(SchemaError, match="a JSON object needs a struct of its fields, not int32"):
        json_encoder(pa.int32())
