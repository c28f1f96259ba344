"""The Protobuf encoder: Google's library reads its output, and errors name what does not fit."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparklog.base.errors import SchemaError
from sparklog.schemas import encode_kernels as kernels
from sparklog.schemas.encoding import BadRow
from sparklog.schemas.protobuf import ProtobufReadOptions
from sparklog.schemas.protobuf_decoding import ProtobufDecoder
from sparklog.schemas.protobuf_encoding import protobuf_encoder
from support.runs.seeds import examples
from support.schemas.protobuf import FieldProto, Of, Schema, file_of, filled, schema, schemas, shown, type_names

pytestmark = pytest.mark.slow

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
OPTIONS = st.builds(
    ProtobufReadOptions,
    enums_as_ints=st.booleans(),
    upcast_unsigned_ints=st.booleans(),
    unwrap_primitive_wrapper_types=st.booleans(),
)


def column_of(bodies: list[bytes | None], of: Schema, options: ProtobufReadOptions) -> pa.Array:
    """Return the column that our decoder reads."""
    decoder = ProtobufDecoder(of.message(), options)
    sizes = np.array([len(each or b"") for each in bodies], np.int64)
    ends = np.cumsum(sizes)
    is_null, faults = np.array([each is None for each in bodies], bool), np.zeros(len(bodies), np.uint8)
    data = np.frombuffer(b"".join(each or b"" for each in bodies), np.uint8)
    found = [array for array, _ in decoder.decode(data, ends - sizes, ends, is_null, faults)]
    assert not faults.any()
    return pa.concat_arrays(found) if found else pa.nulls(0, decoder.type)


@settings(max_examples=examples(120), deadline=None, suppress_health_check=SLOW)
@given(st.data())
def test_googles_library_reads_what_was_read_and_written_again(data: st.DataObject) -> None:
    of: Schema = data.draw(schemas())
    options = data.draw(OPTIONS)
    messages = data.draw(st.lists(st.none() | filled(of.of), max_size=5))
    bodies = [each if each is None else each.SerializeToString() for each in messages]
    column = column_of(bodies, of, options).slice(data.draw(st.integers(0, 2)))
    encoder = protobuf_encoder(column.type, of.message(), frame=b"f")
    written = encoder.encode(column).to_pylist()
    kept = messages[len(messages) - len(column) :]
    assert [each is None for each in written] == [each is None for each in kept]
    for body, message in zip(written, kept, strict=True):
        if body is not None:
            assert body[:1] == b"f"
            assert shown(of.of.FromString(body[1:]), options) == shown(message, options)


def message_of(*fields: Any, syntax: str = "proto3") -> Schema:
    file = file_of(syntax)
    made = file.message_type.add(name="M")
    for number, (name, kind, more) in enumerate(fields, 1):
        usual = {"number": number, "name": name, "type": kind, "label": FieldProto.LABEL_OPTIONAL, **type_names(kind)}
        made.field.add(**{**usual, **more})
    return schema(file)


def written(of: Schema, values: list[Any], arrow: pa.DataType) -> list[Any]:
    bodies = protobuf_encoder(arrow, of.message()).encode(pa.array(values, arrow)).to_pylist()
    return [None if body is None else of.of.FromString(body) for body in bodies]


REPEATED = {"label": FieldProto.LABEL_REPEATED}


@pytest.mark.parametrize(
    ("kind", "arrow", "value", "expected"),
    [
        (Of.TYPE_INT64, pa.int8(), -5, -5),
        (Of.TYPE_SFIXED64, pa.int32(), -5, -5),
        (Of.TYPE_SINT32, pa.int16(), -300, -300),
        (Of.TYPE_UINT32, pa.int32(), -1, 2**32 - 1),
        (Of.TYPE_UINT32, pa.int64(), 2**32 - 1, 2**32 - 1),
        (Of.TYPE_FIXED32, pa.int64(), 2**32 - 1, 2**32 - 1),
        (Of.TYPE_UINT64, pa.decimal128(20, 0), Decimal(2**64 - 1), 2**64 - 1),
        (Of.TYPE_FIXED64, pa.decimal128(20, 0), Decimal(2**64 - 1), 2**64 - 1),
        (Of.TYPE_UINT64, pa.int64(), -1, 2**64 - 1),
        (Of.TYPE_DOUBLE, pa.float32(), 0.5, 0.5),
        (Of.TYPE_ENUM, pa.string(), "BLUE", -7),
        (Of.TYPE_ENUM, pa.int32(), 99, 99),
    ],
)
def test_values_that_fit(kind: int, arrow: pa.DataType, value: Any, expected: Any) -> None:
    single, many = pa.field("one", arrow), pa.field("many", pa.list_(arrow))
    of = message_of(("one", kind, {}), ("many", kind, REPEATED))
    rows = written(of, [{"one": value, "many": [value] * 3}, {"one": None, "many": []}], pa.struct([single, many]))
    assert (rows[0].one, list(rows[0].many)) == (expected, [expected] * 3)
    assert rows[1] == of.of()


def test_messages_within_others_are_written_in_pieces() -> None:
    file = file_of()
    made = file.message_type.add(name="M")
    inner = made.nested_type.add(name="N")
    inner.field.add(name="s", number=1, type=Of.TYPE_STRING, label=1)
    made.field.add(name="n", number=1, type=Of.TYPE_MESSAGE, type_name=".test.M.N", **REPEATED)
    of, struct = schema(file), pa.struct([("n", pa.list_(pa.struct([("s", pa.string())])))])
    values = [{"n": [{"s": "x" * (i % 7)} for _ in range(i % 5)]} for i in range(200)]
    found = protobuf_encoder(struct, of.message()).encode(pa.array(values, struct), piece_bytes=60)
    assert found.num_chunks > 20
    read = [of.of.FromString(body) for body in found.to_pylist()]
    assert [{"n": [{"s": each.s} for each in row.n]} for row in read] == values


def test_zeros_are_written_so_that_reads_tell_them_from_null() -> None:
    of = message_of(("n", Of.TYPE_INT32, {}), ("s", Of.TYPE_STRING, {}))
    arrow = pa.struct([("s", pa.string()), ("n", pa.int32())])
    encoder = protobuf_encoder(arrow, of.message())
    bodies = encoder.encode(pa.array([{"n": 0, "s": ""}, {"n": None, "s": None}], arrow)).to_pylist()
    read = column_of(bodies, of, ProtobufReadOptions()).to_pylist()
    assert read == [{"n": 0, "s": ""}, {"n": None, "s": None}]


@pytest.mark.parametrize(
    ("kind", "arrow", "value", "fault"),
    [
        (Of.TYPE_UINT32, pa.int64(), -1, kernels.OUT_OF_RANGE),
        (Of.TYPE_FIXED32, pa.int64(), 2**32, kernels.OUT_OF_RANGE),
        (Of.TYPE_UINT64, pa.decimal128(20, 0), Decimal(2**64), kernels.OUT_OF_RANGE),
        (Of.TYPE_ENUM, pa.string(), "PINK", kernels.NO_SYMBOL),
    ],
)
def test_a_row_that_cannot_be_written_is_named(kind: int, arrow: pa.DataType, value: Any, fault: int) -> None:
    of, struct = message_of(("f", kind, {})), pa.struct([("f", arrow)])
    with pytest.raises(BadRow) as refused:
        protobuf_encoder(struct, of.message()).encode(pa.array([None, {"f": None}, {"f": value}], struct))
    assert (refused.value.row, refused.value.path, refused.value.reason) == (2, "f", kernels.FAULTS[fault])


def test_nulls_that_protobuf_does_not_have_are_named() -> None:
    of = message_of(("many", Of.TYPE_INT32, REPEATED), ("must", Of.TYPE_INT32, {"label": 2}), syntax="proto2")
    struct = pa.struct([("many", pa.list_(pa.int32())), ("must", pa.int32())])
    encoder = protobuf_encoder(struct, of.message())
    for value, path in (({"many": [1, None], "must": 1}, "many[]"), ({"many": [], "must": None}, "must")):
        with pytest.raises(BadRow) as refused:
            encoder.encode(pa.array([value], struct))
        assert (refused.value.path, refused.value.reason) == (path, kernels.FAULTS[kernels.IS_NULL])
    with pytest.raises(SchemaError, match="must: the column has no such field, which is required"):
        protobuf_encoder(pa.struct([("many", pa.list_(pa.int32()))]), of.message())


def test_a_oneof_has_one_value() -> None:
    file = file_of()
    made = file.message_type.add(name="M")
    made.oneof_decl.add(name="choice")
    for number, name in enumerate("abc", 1):
        made.field.add(name=name, number=number, type=Of.TYPE_INT32, label=1, oneof_index=0)
    of, struct = schema(file), pa.struct([(name, pa.int32()) for name in "abc"])
    rows = written(of, [{"b": 0}, {}, {"c": 3}], struct)
    assert [row.WhichOneof("choice") for row in rows] == ["b", None, "c"]
    with pytest.raises(BadRow, match=r"row 1: c: another member of the oneof has a value, too"):
        written(of, [{"b": 1}, {"a": 0, "c": 1}], struct)


@pytest.mark.parametrize(
    ("kind", "more", "arrow", "said"),
    [
        (Of.TYPE_INT32, {}, pa.int64(), "f: int64 cannot be written as int32"),
        (Of.TYPE_STRING, {}, pa.binary(), "f: binary cannot be written as string"),
        (Of.TYPE_INT32, REPEATED, pa.int32(), "f: int32 cannot be written as repeated int32"),
        (Of.TYPE_DOUBLE, {}, pa.decimal128(5, 2), r"f: decimal128\(5, 2\) cannot be written as double"),
        (
            Of.TYPE_MESSAGE,
            {"type_name": ".google.protobuf.Timestamp"},
            pa.timestamp("us"),
            r"f: timestamp\[us\] cannot be written as google.protobuf.Timestamp",
        ),
    ],
)
def test_a_column_that_does_not_fit_is_refused(kind: int, more: Any, arrow: pa.DataType, said: str) -> None:
    message = message_of(("f", kind, more)).message()
    with pytest.raises(SchemaError, match=said):
        protobuf_encoder(pa.struct([("f", arrow)]), message)
    with pytest.raises(SchemaError, match=r"g: message test.M has no such field"):
        protobuf_encoder(pa.struct([("g", arrow)]), message)
    with pytest.raises(SchemaError, match=r"message test.M needs a struct of its fields, not int32"):
        protobuf_encoder(pa.int32(), message)
