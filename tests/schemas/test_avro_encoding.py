"""The Avro encoder beside fastavro: fastavro reads the same values, and errors name what does not fit."""

from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparklog.base.errors import SchemaError
from sparklog.schemas import encode_kernels as kernels
from sparklog.schemas.avro import parse_avro
from sparklog.schemas.avro_encoding import avro_encoder, derived_schema
from sparklog.schemas.columns import lay_out
from sparklog.schemas.encoding import BadRow
from support.runs.seeds import examples
from support.schemas.avro import Sample, decoded, read_by_fastavro, samples, written

pytestmark = pytest.mark.slow

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields)}


def encoded(of: pa.DataType, schema: Any, values: list[Any], **options: Any) -> list[bytes | None]:
    """Return the bodies that the encoder writes for values of a type."""
    column = values if isinstance(values, pa.Array) else pa.array(values, of)
    bodies = avro_encoder(of, parse_avro(json.dumps(schema)), **options).encode(column)
    bodies.validate(full=True)
    return bodies.to_pylist()


def type_of(schema: Any) -> pa.DataType:
    """Return the type of a column that a read with the schema returns."""
    return lay_out(parse_avro(json.dumps(schema))).root.type


@settings(max_examples=examples(150), deadline=None, suppress_health_check=SLOW)
@given(st.data())
def test_fastavro_reads_the_values_that_were_written(data: st.DataObject) -> None:
    sample: Sample = data.draw(samples())
    given_bodies: list[bytes | None] = list(written(sample.schema, data.draw(st.lists(sample.values, max_size=6))))
    given_bodies.insert(data.draw(st.integers(0, len(given_bodies))), None)
    rows, _ = decoded(given_bodies, sample.schema)
    start = data.draw(st.integers(0, len(rows)))
    column = pa.array(rows, type_of(sample.schema)).slice(start)
    bodies = encoded(column.type, sample.schema, column)
    assert [body if body is None else read_by_fastavro(body, sample.schema) for body in bodies] == rows[start:]
    assert decoded(bodies, sample.schema) == (rows[start:], [0] * len(bodies))


def test_a_slice_of_structs_that_hold_nothing_is_written() -> None:
    schema: dict[str, Any] = record({"name": "f", "type": "null"})
    for name in ("S", "T", "U"):
        schema = {"type": "record", "name": name, "fields": [{"name": "f", "type": schema}]}
    row = {"f": {"f": {"f": {"f": None}}}}
    column = pa.array([row] * 5, type_of(schema)).slice(4)
    assert encoded(column.type, schema, column) == [b""]


@settings(max_examples=examples(100), deadline=None, suppress_health_check=SLOW)
@given(st.data())
def test_the_schema_of_a_type_holds_all_its_values(data: st.DataObject) -> None:
    sample: Sample = data.draw(samples())
    rows, _ = decoded(written(sample.schema, data.draw(st.lists(sample.values, max_size=6))), sample.schema)
    of = type_of(sample.schema)
    schema = derived_schema(of)
    fastavro.parse_schema(schema)
    bodies = encoded(of, schema, rows)
    assert decoded(bodies, schema) == (rows, [0] * len(rows))
    assert [read_by_fastavro(body or b"", schema) for body in bodies] == rows


def test_the_kernel_is_compiled_once_for_all_schemas() -> None:
    encoded(pa.string(), "string", ["a"])
    encoded(pa.list_(pa.float64()), {"type": "array", "items": "double"}, [[1.0]])
    assert len(kernels.encode_columns.signatures) == 1


def test_a_tombstone_has_no_body_and_no_frame() -> None:
    assert encoded(pa.string(), "string", [None, "a", None], frame=b"\0\0\0\0\7") == [None, b"\0\0\0\0\7\2a", None]
    assert encoded(pa.int64(), ["null", "long"], [None, 1]) == [None, b"\2\2"]


def test_bodies_of_many_bytes_come_in_pieces_that_arrow_can_hold() -> None:
    encoder = avro_encoder(pa.string(), parse_avro("string"))
    column = pa.array(["aaaa", None, "bb", "", "cccc", None])
    whole = encoder.encode(column)
    assert whole.num_chunks == 1
    for piece_bytes in (5, 6, 8, 9, 14):
        pieces = encoder.encode(column, piece_bytes=piece_bytes)
        assert pieces.to_pylist() == whole.to_pylist()
        assert all(sum(map(len, filter(None, each.to_pylist()))) <= piece_bytes for each in pieces.chunks)
    with pytest.raises(BadRow, match="row 0: the value: it has more than 4 bytes"):
        encoder.encode(column, piece_bytes=4)
    assert encoder.encode(column.slice(0, 0)).num_chunks == 0


DATE = {"type": "int", "logicalType": "date"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
LOCAL = {"type": "long", "logicalType": "local-timestamp-millis"}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
AT = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999)


def decimal(precision: int, scale: int, **of: Any) -> Any:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale, **of}


@pytest.mark.parametrize(
    ("of", "schema", "value", "read"),
    [
        (pa.int8(), "int", -128, -128),
        (pa.int16(), "long", -(2**15), -(2**15)),
        (pa.int16(), "double", 5, 5.0),
        (pa.int32(), "double", -7, -7.0),
        (pa.float32(), "double", 0.5, 0.5),
        (pa.int64(), ["int", "null", "long"], 5, 5),
        (pa.string(), ["int", ENUM, "null"], "B", "B"),
        (pa.timestamp("us", "UTC"), MILLIS, AT.replace(tzinfo=datetime.UTC), -1),
        (pa.timestamp("us"), LOCAL, AT, -1),
        (pa.date32(), DATE, datetime.date(1969, 12, 31), -1),
        (pa.decimal128(5, 2), decimal(38, 2), Decimal("-1.28"), b"\x80"),
        (pa.decimal128(5, 2), decimal(9, 2, type="fixed", name="F", size=4), Decimal("1.28"), b"\0\0\0\x80"),
        (pa.decimal128(38, 0), decimal(38, 0), Decimal(10**38 - 1), (10**38 - 1).to_bytes(16, "big")),
        (pa.struct([("member0", pa.string()), ("member1", pa.int32())]), ["string", "int"], {"member1": 3}, 3),
    ],
)
def test_values_that_fit_are_widened(of: pa.DataType, schema: Any, value: Any, read: Any) -> None:
    (body,) = encoded(of, schema, [value])
    plain = json.loads(json.dumps(schema).replace("logicalType", "unused"))
    assert fastavro.schemaless_reader(io.BytesIO(body or b""), plain) == read


def test_fields_are_found_by_name_and_missing_ones_get_their_default() -> None:
    schema = record(
        {"name": "note", "type": ["string", "null"]},
        {"name": "b", "type": "string"},
        {"name": "list", "type": {"type": "array", "items": "long"}, "default": [1, 2]},
        {"name": "a", "type": "long"},
    )
    (body,) = encoded(pa.struct([("a", pa.int32()), ("b", pa.string())]), schema, [{"a": 1, "b": "x"}])
    assert read_by_fastavro(body or b"", schema) == {"note": None, "b": "x", "list": [1, 2], "a": 1}


A = record({"name": "a", "type": "int"})


@pytest.mark.parametrize(
    ("of", "schema", "said"),
    [
        (pa.int64(), "int", "the value: int64 cannot be written as int"),
        (pa.float64(), "float", "the value: double cannot be written as float"),
        (pa.int32(), "float", "the value: int32 cannot be written as float"),
        (pa.int64(), MILLIS, "the value: int64 cannot be written as timestamp-millis"),
        (pa.timestamp("us"), MILLIS, r"the value: timestamp\[us\] cannot be written as timestamp-millis"),
        (pa.timestamp("us", "UTC"), "long", "cannot be written as long"),
        (pa.decimal128(5, 2), decimal(5, 1), "cannot be written as decimal"),
        (pa.decimal128(6, 2), decimal(5, 2), "cannot be written as decimal"),
        (pa.null(), "string", "the value: null cannot be written as string"),
        (pa.binary(), "string", "the value: binary cannot be written as string"),
        (pa.string(), ["null", "int"], "the value: string cannot be written as int"),
        (pa.string(), ["bytes", "null", "int"], "the value: string cannot be written as union of bytes, null, int"),
        (pa.map_(pa.int32(), pa.int32()), {"type": "map", "values": "int"}, "cannot be written as map of int"),
        (pa.struct([("b", pa.int32())]), A, "b: record R has no such field"),
        (pa.struct([]), A, "a: the column has no such field, and the schema no default for it"),
        (
            pa.struct([("a", pa.list_(pa.struct([("b", pa.string())])))]),
            record({"name": "a", "type": {"type": "array", "items": {**A, "name": "I"}}}),
            r"a\[\]\.b: record I has no such field",
        ),
        (pa.struct([("a", pa.string())]), A, "a: string cannot be written as int"),
    ],
)
def test_a_column_that_does_not_fit_is_named(of: pa.DataType, schema: Any, said: str) -> None:
    with pytest.raises(SchemaError, match=f"the column does not fit the schema: .*{said}"):
        avro_encoder(of, parse_avro(json.dumps(schema)))


INNER = pa.struct([("a", pa.struct([("b", pa.list_(pa.int32()))]))])
INNER_SCHEMA = record(
    {"name": "a", "type": {**record({"name": "b", "type": {"type": "array", "items": "int"}}), "name": "S"}}
)


@pytest.mark.parametrize(
    ("of", "schema", "values", "row", "path", "fault"),
    [
        (INNER, INNER_SCHEMA, [{"a": {"b": [1]}}, None, {"a": None}], 2, "a", kernels.IS_NULL),
        (INNER, INNER_SCHEMA, [{"a": {"b": None}}], 0, "a.b", kernels.IS_NULL),
        (INNER, INNER_SCHEMA, [{"a": {"b": [1]}}, {"a": {"b": [1, None]}}], 1, "a.b[]", kernels.IS_NULL),
        (pa.string(), ENUM, ["A", "C"], 1, "", kernels.NO_SYMBOL),
        (pa.binary(), {"type": "fixed", "name": "F", "size": 2}, [b"ab", b"abc"], 1, "", kernels.OTHER_SIZE),
        (
            pa.struct([("member0", pa.string()), ("member1", pa.int32())]), ["string", "int"], [{}], 0, "",
            kernels.NO_MEMBER,
        ),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_written_is_named(
    of: pa.DataType, schema: Any, values: list[Any], row: int, path: str, fault: int
) -> None:
    with pytest.raises(BadRow) as failed:
        encoded(of, schema, values)
    assert (failed.value.row, failed.value.path, failed.value.reason) == (row, path, kernels.FAULTS[fault])


def test_a_text_that_is_not_utf8_is_not_written() -> None:
    text = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"], pa.binary()).buffers())
    with pytest.raises(BadRow, match="the text is not UTF-8"):
        encoded(pa.string(), "string", text)


def test_types_that_avro_does_not_have_are_refused() -> None:
    with pytest.raises(SchemaError, match=r"topLevelRecord.a: Avro has no duration\[us\]; cast it to another type"):
        derived_schema(pa.struct([("a", pa.duration("us"))]))
    with pytest.raises(SchemaError, match="a field is an object with a valid `name`"):
        parse_avro(json.dumps(derived_schema(pa.struct([("a b", pa.int32())]))))


def test_a_branch_that_fits_only_at_its_beginning_leaves_nothing_behind() -> None:
    def holder(name: str, of: str) -> Any:
        item = {**record({"name": "a", "type": "long"}, {"name": "b", "type": of}), "name": f"{name}Item"}
        return {**record({"name": "x", "type": {"type": "array", "items": item}}), "name": name}

    schema = [holder("Ints", "int"), "null", holder("Texts", "string")]
    of = pa.struct([("x", pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())])))])
    value = {"x": [{"a": 1, "b": "one"}, {"a": 2, "b": "two"}]}
    (body,) = encoded(of, schema, [value])
    assert fastavro.schemaless_reader(io.BytesIO(body or b""), fastavro.parse_schema(schema)) == value
