"""The Avro decoder beside fastavro: schemas, values, evolution, and random bytes."""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sparklog.base.errors import SchemaError
from sparklog.schemas import avro_kernels
from sparklog.schemas import column_kernels as kernels
from sparklog.schemas.avro import parse_avro
from sparklog.schemas.avro_decoding import AvroDecoder
from support.runs.seeds import examples
from support.schemas.avro import Sample, decoded, evolved, read_by_fastavro, run, samples, written

pytestmark = pytest.mark.slow

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

# Faults of bytes that fastavro accepts or does not survive.
STRICTER = {
    kernels.TOO_LONG, kernels.BAD_VARINT, kernels.OUT_OF_RANGE, kernels.BAD_BOOLEAN, kernels.BAD_SIZE,
    kernels.TOO_MANY_ITEMS, kernels.BAD_BRANCH, kernels.BAD_SYMBOL,
}  # fmt: skip


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields)}


@settings(max_examples=examples(150), deadline=None, suppress_health_check=SLOW)
@given(st.data())
def test_a_value_is_what_fastavro_reads(data: st.DataObject) -> None:
    sample: Sample = data.draw(samples())
    bodies = written(sample.schema, data.draw(st.lists(sample.values, max_size=6)))
    rows, faults = decoded(bodies, sample.schema)
    assert faults == [0] * len(bodies)
    assert rows == [read_by_fastavro(body, sample.schema) for body in bodies]


@settings(max_examples=examples(150), deadline=None, suppress_health_check=SLOW)
@given(st.data())
def test_an_evolved_schema_reads_what_fastavro_reads_with_it(data: st.DataObject) -> None:
    sample: Sample = data.draw(samples(logical=False))
    reader = data.draw(evolved(sample.schema))
    bodies = written(sample.schema, data.draw(st.lists(sample.values, max_size=6)))
    rows, faults = decoded(bodies, sample.schema, reader)
    assert faults == [0] * len(bodies)
    assert rows == [read_by_fastavro(body, sample.schema, reader) for body in bodies]


@settings(max_examples=examples(200), deadline=None, suppress_health_check=SLOW)
@given(st.data())
def test_changed_bytes_are_malformed_or_what_fastavro_reads(data: st.DataObject) -> None:
    sample: Sample = data.draw(samples(logical=False))
    good = written(sample.schema, data.draw(st.lists(sample.values, min_size=1, max_size=4)))
    bodies = [data.draw(_changed(body)) for body in good] + data.draw(st.lists(st.binary(max_size=30), max_size=4))
    rows, faults = decoded(bodies, sample.schema)
    for body, row, fault in zip(bodies, rows, faults, strict=True):
        if not fault:
            assert row == _without_nan(read_by_fastavro(body, sample.schema))
            continue
        assert row is None
        if fault not in STRICTER:
            with pytest.raises((EOFError, UnicodeDecodeError, IndexError, ValueError)):
                read_by_fastavro(body, sample.schema)


def _without_nan(value: Any) -> Any:
    assume("nan" not in repr(value))
    return value


@st.composite
def _changed(draw: st.DrawFn, body: bytes) -> bytes:
    at = draw(st.integers(0, len(body)))
    match draw(st.sampled_from(["cut", "replace", "insert", "same"])):
        case "cut":
            return body[:at]
        case "replace":
            return body[:at] + draw(st.binary(min_size=1, max_size=1)) + body[at + 1 :]
        case "insert":
            return body[:at] + draw(st.binary(max_size=10)) + body[at:]
        case _:
            return body


def test_malformed_rows_and_tombstones_are_null_and_leave_the_others_alone() -> None:
    schema = record({"name": "a", "type": "string"}, {"name": "b", "type": {"type": "array", "items": "string"}})
    good = written(schema, [{"a": "x", "b": ["1", "2"]}, {"a": "", "b": []}, {"a": "y", "b": ["3"]}])
    rows, faults = decoded([good[0], good[0][:-1], None, good[1], b"", good[2]], schema)
    assert rows == [{"a": "x", "b": ["1", "2"]}, None, None, {"a": "", "b": []}, None, {"a": "y", "b": ["3"]}]
    assert faults == [0, kernels.CUT_OFF, 0, 0, kernels.CUT_OFF, 0]


def test_bodies_of_several_schemas_stand_side_by_side() -> None:
    old = record({"name": "id", "type": "int"}, {"name": "gone", "type": {"type": "map", "values": "bytes"}})
    new = record({"name": "name", "type": "string"}, {"name": "id", "type": "long"})
    reader = record({"name": "id", "type": "long"}, {"name": "name", "type": "string", "default": "?"})
    decoder = AvroDecoder(parse_avro(json.dumps(reader)))
    first, second = (decoder.add_writer(parse_avro(json.dumps(each))) for each in (old, new))
    bodies = [*written(old, [{"id": 1, "gone": {"k": b"v"}}]), *written(new, [{"id": 2**40, "name": "n"}])]
    rows, faults = run(decoder, bodies * 2, [first, second] * 2)
    assert rows == [{"id": 1, "name": "?"}, {"id": 2**40, "name": "n"}] * 2
    assert not any(faults)


def test_the_kernel_is_compiled_once_for_all_schemas() -> None:
    for schema in ("string", {"type": "array", "items": "double"}, ENUM, decimal(5)):
        decoded([b"\0"], schema)
    assert len(avro_kernels.decode_avro.signatures) == 1


def test_members_of_a_union_are_as_in_sparks_from_avro() -> None:
    schema = record({"name": "u", "type": ["string", "null", "int", {"type": "array", "items": "int"}]})
    bodies = written(schema, [{"u": "a"}, {"u": None}, {"u": 5}, {"u": [1, 2]}])
    rows, _ = decoded(bodies, schema)
    nothing = {"member0": None, "member1": None, "member2": None}
    assert [row["u"] for row in rows] == [
        {**nothing, "member0": "a"}, None, {**nothing, "member1": 5}, {**nothing, "member2": [1, 2]},
    ]  # fmt: skip
    for union, arrow in ((["int", "long"], pa.int64()), (["float", "double", "null"], pa.float64())):
        assert AvroDecoder(parse_avro(json.dumps(union))).type == arrow
    rows, _ = decoded([b"\x00\x02", b"\x02\x04"], ["int", "long"])
    assert rows == [1, 2]


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


def decimal(precision: int) -> Any:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision}


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}


@pytest.mark.parametrize(
    ("writer", "reader", "body", "value"),
    [
        ("int", "double", b"\x09", -5.0),
        ("long", "float", b"\x09", -5.0),
        ("float", "double", struct.pack("<f", 0.5), 0.5),
        ("string", "bytes", b"\x04\xc3\xa4", b"\xc3\xa4"),
        ("bytes", "string", b"\x04\xc3\xa4", "ä"),
        (decimal(50), "bytes", b"\x04ab", b"ab"),
        (decimal(50), decimal(38), b"\x02\xff", Decimal(-1)),
        ("int", ["string", "null", "long"], b"\x02", {"member0": None, "member1": 1}),
        ("int", ["double", "null", "int"], b"\x02", {"member0": None, "member1": 1}),
        (["null", "int"], "int", b"\x02\x02", 1),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            {"type": "long", "logicalType": "timestamp-micros"},
            b"\x02",
            "1970-01-01T00:00:00.001000+00:00",
        ),
        (
            {"type": "int", "logicalType": "time-millis"},
            {"type": "long", "logicalType": "time-micros"},
            b"\x02",
            1000,
        ),
        (ENUM, {**ENUM, "symbols": ["B"], "default": "B"}, b"\x00", "B"),
        (
            {**record({"name": "x", "type": "int"}), "namespace": "a"},
            {**record({"name": "x", "type": "int"}), "name": "S", "aliases": ["R"]},
            b"\x02",
            {"x": 1},
        ),
    ],
)
def test_promotions_and_resolutions(writer: Any, reader: Any, body: bytes, value: Any) -> None:
    rows, faults = decoded([body], writer, reader)
    assert faults == [0]
    assert [row.isoformat() if hasattr(row, "isoformat") else row for row in rows] == [value]


@pytest.mark.parametrize(
    ("writer", "reader", "body", "fault"),
    [
        (["null", "int"], "int", b"\x00", kernels.NO_MATCH),
        (ENUM, {**ENUM, "symbols": ["B"]}, b"\x00", kernels.BAD_SYMBOL),
        (ENUM, ENUM, b"\x04", kernels.BAD_SYMBOL),
        ("int", "int", b"\x80\x80\x80\x80\x10", kernels.OUT_OF_RANGE),
        ("long", "long", b"\xff" * 10 + b"\x01", kernels.BAD_VARINT),
        ("boolean", "boolean", b"\x02", kernels.BAD_BOOLEAN),
        ("string", "string", b"\x03abc", kernels.BAD_SIZE),
        ("string", "string", b"\x08abc", kernels.BAD_SIZE),
        ("string", "string", b"\x02a\x00", kernels.TOO_LONG),
        ("bytes", "string", b"\x02\xff", kernels.NOT_UTF8),
        (["null", "int"], ["null", "int"], b"\x04\x02", kernels.BAD_BRANCH),
        (MILLIS, MILLIS, b"\xfe" + b"\xff" * 8 + b"\x01", kernels.OUT_OF_RANGE),
        (decimal(2), decimal(2), b"\x02\x64", kernels.BAD_DECIMAL),
        (decimal(38), decimal(38), b"\x22" + b"\x01" * 17, kernels.BAD_DECIMAL),
        (decimal(38), decimal(38), b"\x20\x80" + b"\x00" * 15, kernels.BAD_DECIMAL),
    ],
)  # fmt: skip
def test_the_fault_of_a_malformed_body(writer: Any, reader: Any, body: bytes, fault: int) -> None:
    rows, faults = decoded([body], writer, reader)
    assert rows == [None]
    assert faults == [fault]
    assert kernels.FAULTS[fault]


@pytest.mark.parametrize(
    "text", ["\ud7ff", "\ue000", "\U00010000", "\U0010ffff", "a" * 9 + "ß", "ß" * 9, "\x7f\x80", "\u07ff\u0800"]
)
def test_every_text_is_read(text: str) -> None:
    assert decoded(written("string", [text]), "string") == ([text], [0])


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=12), st.integers(0, 9))
def test_texts_are_utf8_exactly_where_python_says_so(text: bytes, padding: int) -> None:
    text = b"a" * padding + text
    try:
        expected = ([text.decode()], [0])
    except UnicodeDecodeError:
        expected = ([None], [kernels.NOT_UTF8])
    assert decoded([bytes([2 * len(text)]) + text], "string") == expected


@pytest.mark.parametrize(
    ("of", "default", "value"),
    [
        ("bytes", "\u00ff\u0000", b"\xff\x00"),
        ({"type": "fixed", "name": "F", "size": 2}, "\u00ff\u0000", b"\xff\x00"),
        (ENUM, "B", "B"),
        ("double", 1, 1.0),
        ("null", None, None),
        (["null", "string"], "text", "text"),  # Avro 1.12: of any branch
        (["int", "string"], 7, {"member0": 7, "member1": None}),
        (record({"name": "x", "type": "int"}, {"name": "y", "type": "int", "default": 2}), {"x": 1}, {"x": 1, "y": 2}),
    ],
)
def test_defaults(of: Any, default: Any, value: Any) -> None:
    reader = {**record({"name": "d", "type": of, "default": default}, {"name": "k", "type": "int"}), "name": "Top"}
    assert decoded([b"\x02"] * 2, {**record({"name": "k", "type": "int"}), "name": "Top"}, reader) == (
        [{"d": value, "k": 1}] * 2,
        [0, 0],
    )


HUGE = b"\x80\x80\x80\x80\x80\x80\x80\x80\x01"  # 2^55


@pytest.mark.parametrize("items", ["null", "long", {"type": "record", "name": "Empty", "fields": []}])
@pytest.mark.parametrize("skipped", [False, True])
def test_an_array_that_claims_more_than_its_bytes_costs_nothing(items: Any, skipped: bool) -> None:
    writer = record({"name": "a", "type": {"type": "array", "items": items}})
    reader = record() if skipped else writer
    rows, faults = decoded([HUGE, HUGE[:-1] + b"\x00" * 8, b"\x01" + b"\x02"], writer, reader)
    assert rows == [None] * 3
    assert faults[0] == kernels.TOO_MANY_ITEMS


def test_arrays_of_nothing_within_arrays_have_one_limit_for_the_row() -> None:
    nulls = {"type": "array", "items": "null"}
    body = b"\x04" + (b"\x80\x0a\x00") * 2 + b"\x00"  # two arrays of 640 nulls
    _, faults = decoded([body[:1] + b"\x80\x0a\x00" + b"\x02\x00" + b"\x00", body], {"type": "array", "items": nulls})
    assert faults == [0, kernels.TOO_MANY_ITEMS]


def test_a_block_may_tell_its_size_in_bytes() -> None:
    array = {"type": "array", "items": "int"}
    assert decoded([b"\x03\x04\x02\x04\x02\x06\x00"], array) == ([[1, 2, 3]], [0])


def test_columns_stay_below_the_limit_and_no_row_is_lost() -> None:
    bodies = written("string", ["x" * 100] * 50)
    rows, faults = decoded([*bodies, *written("string", ["y" * 2000]), *bodies], "string", limit_bytes=1000)
    assert faults == [0] * 50 + [kernels.TOO_LARGE] + [0] * 50
    assert rows == ["x" * 100] * 50 + [None] + ["x" * 100] * 50


def test_defaults_cannot_multiply_a_body_beyond_the_limit() -> None:
    items = record()
    evolved_items = record({"name": "d", "type": "string", "default": "x" * 1000})
    body = b"\x80\x10" + b"\x00"  # 1024 records of no bytes
    _, faults = decoded(
        [body], {"type": "array", "items": items}, {"type": "array", "items": evolved_items}, limit_bytes=100_000
    )
    assert faults == [kernels.TOO_LARGE]


@pytest.mark.parametrize(
    ("writer", "reader", "reason"),
    [
        ("string", "int", "the value: string cannot be read as int"),
        (record(), record({"name": "a", "type": "int"}), "a is not in the writer's schema, and has no default"),
        (
            record({"name": "a", "type": {"type": "array", "items": "string"}}),
            record({"name": "a", "type": {"type": "array", "items": "int"}}),
            "a[]: string cannot be read as int",
        ),
        (["string", "bytes"], "int", "the value: string cannot be read as int"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1},
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            "decimal(4, 1) of bytes cannot be read as decimal(4, 2) of bytes",
        ),
        ({"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-millis"}, "date cannot"),
        (record(), record({"name": "a", "type": "int", "default": "x"}), "a: the default 'x' is no int"),
        (ENUM, {**ENUM, "name": "Other"}, "enum E cannot be read as enum Other"),
        (record(), {**record(), "name": "Other"}, "record R cannot be read as record Other"),
    ],
)
def test_schemas_that_do_not_fit_are_refused_with_the_place(writer: Any, reader: Any, reason: str) -> None:
    decoder = AvroDecoder(parse_avro(json.dumps(reader)))
    with pytest.raises(SchemaError) as refused:
        decoder.add_writer(parse_avro(json.dumps(writer)))
    assert reason in str(refused.value)
    if not isinstance(reader, list):  # the decoder works as before
        entry = decoder.add_writer(parse_avro(json.dumps(reader)))
        assert entry == AvroDecoder(parse_avro(json.dumps(reader))).add_writer(parse_avro(json.dumps(reader)))
