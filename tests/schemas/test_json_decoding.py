"""JSON objects as structs, beside Python's parser, and random bytes."""

from __future__ import annotations

import datetime
import json
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.base.errors import SchemaError
from sparklog.schemas import json_decoding
from sparklog.schemas.column_kernels import FAULTS, NOT_JSON, NOT_UTF8
from sparklog.schemas.formats import JsonFormat
from sparklog.schemas.framing import frame_of
from sparklog.schemas.json_decoding import JsonDecoder
from sparklog.schemas.json_kernels import MOST_DEPTH

TYPE = pa.struct(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.float64()),
        ("paid", pa.bool_()),
        ("items", pa.list_(pa.field("element", pa.struct([("sku", pa.string()), ("count", pa.int32())])))),
    ]
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ITEMS = st.lists(
    st.none() | st.fixed_dictionaries({}, optional={"sku": st.none() | TEXTS, "count": st.integers(-9, 9)}), max_size=3
)
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | st.integers(-(2**63), 2**63 - 1),
        "name": st.none() | TEXTS,
        "price": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "paid": st.none() | st.booleans(),
        "items": st.none() | ITEMS,
        "unknown": st.recursive(st.none() | st.integers() | TEXTS, lambda each: st.lists(each, max_size=2)),
    },
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.sampled_from(["id", "items", "sku", "x"]), each),
)


def decoded(rows: list[Any], of: pa.DataType = TYPE) -> tuple[list[Any], list[int], list[str]]:
    decoder = JsonFormat(of).decoder("value")
    column = pa.array([None, *(row.encode() if isinstance(row, str) else row for row in rows)], pa.binary())
    values, faults, reasons = [], [], []
    for piece in decoder.decode(column.slice(1), None):
        piece.values.validate(full=True)
        assert piece.values.type == of
        assert piece.first == len(values)
        values += piece.values.to_pylist()
        faults += piece.faults.tolist()
        reasons += [piece.explain(row) for row, fault in enumerate(piece.faults) if fault]
    return values, faults, reasons


FIELDS = ("sku", "count")


def shown(row: Any) -> Any:
    items = row.get("items")
    return {
        **{name: row.get(name) for name in ("id", "name", "price", "paid")},
        "items": items and [each if each is None else {name: each.get(name) for name in FIELDS} for each in items],
    }


@pytest.mark.slow
@given(st.lists(st.none() | ROWS, max_size=6), st.sampled_from([None, 2]), st.booleans())
def test_objects_are_what_python_reads(rows: list[Any], indent: int | None, ascii_only: bool) -> None:
    texts = [None if row is None else json.dumps(row, indent=indent, ensure_ascii=ascii_only) for row in rows]
    values, faults, _ = decoded(texts)
    assert faults == [0] * len(rows)
    assert values == [row if row is None else shown(row) for row in rows]


@pytest.mark.slow
@given(st.lists(ANYTHING.map(json.dumps) | st.binary(max_size=9) | ROWS.map(json.dumps), max_size=5), st.data())
def test_any_bytes_are_malformed_or_an_object(rows: list[Any], data: st.DataObject) -> None:
    bodies = [row.encode() if isinstance(row, str) else row for row in rows]
    for i, body in enumerate(bodies):
        if body and data.draw(st.booleans()):
            at = data.draw(st.integers(0, len(body) - 1))
            bodies[i] = body[:at] + data.draw(st.binary(max_size=2)) + body[at + 1 :]
    values, faults, _ = decoded(bodies)
    for body, value, fault in zip(bodies, values, faults, strict=True):
        if fault:
            assert value is None
        else:
            read = json.loads(body)
            assert isinstance(read, dict)
            assert value["id"] == read.get("id")


@pytest.mark.parametrize(
    "text",
    ["", " ", "null", "{}null", "{}{}", "[]", "5", "{", "}", "{]", "[}", '{"a"}', '{"a":}', '{"a":1,}', "{,}",
     '{"a":1 1}', '{"a":01}', '{"a":+1}',
     '{"a":.5}', '{"a":1.}', '{"a":1e}', '{"a":-}', '{"a":NaN}', '{"a":Infinity}', '{"a":tru}',
     '{"a":nul}', '{"a":falze}', '{"a":"\\x"}', '{"a":"\\u12g4"}', '{"a":"\\u12"}', '{"a":"b}', '{"a":"\n"}', "{'a':1}",
     '{"a":[1,]}', '{"a":[1 2]}', '{"a":1}]', '{"a":{"b":1}', '{1:1}', '{"a":1}x', "\ufeff{}"],
)  # fmt: skip
def test_what_is_no_json_object_is_malformed(text: str) -> None:
    assert decoded([text, '{"id": 1}'])[1] == [NOT_JSON, 0]


@pytest.mark.parametrize(
    "text",
    ["{}", ' \t\r\n{ \n} \r', '{"a":[]}', '{"a":[[],{}]}', '{"a":-0.0e+10}', '{"a":"\\"\\\\\\/\\b\\f\\n\\r\\t\\u00fF"}',
     '{"a":[true,false,null]}', '{"\\u0061":1}', '{"":""}', '{"x":"\x7f\u2028"}', '{"a":1E5,"b":0}'],
)  # fmt: skip
def test_what_is_one_is_read(text: str) -> None:
    assert decoded([text, '{"id": 1}']) == ([shown({}), shown({"id": 1})], [0, 0], [])


def test_depth_is_limited() -> None:
    for depth, fault in ((MOST_DEPTH, 0), (MOST_DEPTH + 1, NOT_JSON), (100_000, NOT_JSON)):
        assert decoded(['{"x":' + "[" * (depth - 1) + "]" * (depth - 1) + "}"])[1] == [fault]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"id": "5"}', "(/id) changed from number to string"),
        ('{"name": 5}', "(/name) changed from string to number"),
        ('{"id": 1.5}', "1.5"),
        ('{"id": 9223372036854775808}', "9223372036854775808"),
        ('{"items": {}}', "(/items) changed from array to object"),
        ('{"items": [{"count": 3000000000}]}', "3000000000"),
        ('{"name": "\\ud800"}', "surrogate"),
    ],
)
def test_a_field_of_another_type_is_named(text: str, said: str) -> None:
    good = '{"id": 7}'
    values, faults, reasons = decoded([good] * 5 + [text] + [good] * 4)
    assert [value and value["id"] for value in values] == [7] * 5 + [None] + [7] * 4
    assert faults == [0] * 5 + [NOT_JSON] + [0] * 4
    assert reasons[0].startswith(FAULTS[NOT_JSON])
    assert said in reasons[0]


def test_texts_that_are_not_utf8_are_malformed() -> None:
    assert decoded([b'{"name": "\xff"}'])[1] == [NOT_UTF8]


def test_dates_decimals_and_timestamps() -> None:
    of = pa.struct(
        [
            ("day", pa.date32()),
            ("days", pa.list_(pa.field("element", pa.struct([("day", pa.date32())])))),
            ("at", pa.timestamp("us", "UTC")),
            ("local", pa.timestamp("us")),
            ("price", pa.decimal128(10, 2)),
        ]
    )
    day = datetime.date(2020, 1, 2)
    row = {
        "day": "2020-01-02",
        "days": [{"day": "2020-01-02"}, None, {}],
        "at": "2020-01-02T03:04:05.678901+01:00",
        "local": "2020-01-02 03:04:05",
        "price": "1.25",
    }
    (value,), (fault,), _ = decoded([json.dumps(row)], of)
    assert fault == 0
    assert value == {
        "day": day,
        "days": [{"day": day}, None, {"day": None}],
        "at": datetime.datetime(2020, 1, 2, 2, 4, 5, 678901, datetime.UTC),
        "local": datetime.datetime(2020, 1, 2, 3, 4, 5),
        "price": Decimal("1.25"),
    }
    (value,), _, _ = decoded(['{"at": "2020-01-02T03:04:05", "price": 1.5}'], of)
    assert (value["at"].isoformat(), value["price"]) == ("2020-01-02T03:04:05+00:00", Decimal("1.50"))
    for wrong in (
        '{"at": 1577934245}',
        '{"day": "2020-02-30"}',
        '{"days": [{"day": "x"}]}',
        '{"price": "1.255"}',
        '{"price": 123456789}',
    ):
        assert decoded([wrong], of)[1] == [NOT_JSON]


def test_frames_of_json_schemas_are_skipped() -> None:
    rows = [frame_of(7) + b'{"id": 1}', b'{"id": 2}', frame_of(uuid.UUID(int=9)) + b'{"id": 3}', b"\0\0{}", frame_of(7)]
    values, faults, _ = decoded(rows)
    assert [value and value["id"] for value in values] == [1, 2, 3, None, None]
    assert faults == [0, 0, 0, NOT_JSON, NOT_JSON]


def test_a_large_column_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_decoding, "PIECE_BYTES", 100)
    rows = [json.dumps({"id": i, "name": "x" * (i % 50)}) if i % 9 else "junk" for i in range(200)]
    values, faults, _ = decoded([*rows, json.dumps({"name": "y" * 500}), None])
    assert [value and value["id"] for value in values[:200]] == [i if i % 9 else None for i in range(200)]
    assert faults == [NOT_JSON if i % 9 == 0 else 0 for i in range(200)] + [0, 0]
    assert values[200]["name"] == "y" * 500


@pytest.mark.parametrize(
    "of",
    [pa.binary(), pa.map_(pa.string(), pa.int64()), pa.null(), pa.struct([])],
    ids=["binary", "map", "null", "empty"],
)
def test_types_that_json_does_not_have_are_refused(of: pa.DataType) -> None:
    with pytest.raises(SchemaError, match=r"x\[\]\.y: .* cannot be read from JSON"):
        JsonDecoder(pa.struct([("x", pa.list_(pa.struct([("y", of)])))]))
