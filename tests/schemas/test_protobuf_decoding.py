"""The Protobuf decoder beside Google's library: schemas, values, evolution, and random bytes."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparklog.schemas import column_kernels as kernels
from sparklog.schemas import protobuf_kernels
from sparklog.schemas.protobuf import ProtobufReadOptions
from support.runs.seeds import examples
from support.schemas.protobuf import (
    FieldProto,
    Of,
    Schema,
    decoded,
    file_of,
    filled,
    schema,
    schemas,
    shown,
    tagged,
    type_names,
    varint,
    without,
)

pytestmark = pytest.mark.slow

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
SYNTAX = st.sampled_from(["proto3", "proto3", "proto2"])
OPTIONS = st.builds(
    ProtobufReadOptions,
    emit_default_values=st.booleans(),
    enums_as_ints=st.booleans(),
    upcast_unsigned_ints=st.booleans(),
    unwrap_primitive_wrapper_types=st.booleans(),
)
WHOLE = ProtobufReadOptions(emit_default_values=True)
"""Google's library does not tell a zero that was written from one that was not."""

# Faults of bytes that Google's library accepts.
STRICTER = {kernels.OUT_OF_RANGE, kernels.NOT_UTF8}


def message_of(*fields: Any, syntax: str = "proto3") -> Schema:
    """Return a message `test.M` of fields with name, kind and further properties."""
    file = file_of(syntax)
    made = file.message_type.add(name="M")
    for number, (name, kind, more) in enumerate(fields, 1):
        usual = {"number": number, "name": name, "type": kind, "label": FieldProto.LABEL_OPTIONAL, **type_names(kind)}
        made.field.add(**{**usual, **more})
    return schema(file)


REPEATED = {"label": FieldProto.LABEL_REPEATED}


@settings(max_examples=examples(120), deadline=None, suppress_health_check=SLOW)
@given(st.data())
def test_a_message_is_what_googles_library_reads(data: st.DataObject) -> None:
    given_schema: Schema = data.draw(SYNTAX.flatmap(schemas))
    options = data.draw(OPTIONS)
    messages = data.draw(st.lists(filled(given_schema.of), max_size=6))
    rows, faults = decoded([each.SerializeToString() for each in messages], given_schema.message(), options)
    assert faults == [0] * len(messages)
    assert rows == [shown(each, options) for each in messages]


@settings(max_examples=examples(120), deadline=None, suppress_health_check=SLOW)
@given(st.data())
def test_fields_that_come_twice_are_merged_as_by_googles_library(data: st.DataObject) -> None:
    given_schema: Schema = data.draw(SYNTAX.flatmap(schemas))
    parts = data.draw(st.lists(st.lists(filled(given_schema.of), min_size=1, max_size=3), min_size=1, max_size=4))
    bodies = [b"".join(each.SerializeToString() for each in row) for row in parts]
    rows, faults = decoded(bodies, given_schema.message(), WHOLE)
    assert faults == [0] * len(bodies)
    assert rows == [shown(given_schema.of.FromString(body), WHOLE) for body in bodies]


@settings(max_examples=examples(80), deadline=None, suppress_health_check=SLOW)
@given(st.data())
def test_other_versions_of_a_schema_read_what_googles_library_reads_with_them(data: st.DataObject) -> None:
    full: Schema = data.draw(SYNTAX.flatmap(schemas))
    gone = data.draw(st.sets(st.sampled_from([f"f{i}" for i in range(4)])))
    smaller = without(full, gone)
    for writer, reader in ((full, smaller), (smaller, full)):
        bodies = [each.SerializeToString() for each in data.draw(st.lists(filled(writer.of), max_size=4))]
        if not reader.message().fields:
            continue
        rows, faults = decoded(bodies, reader.message(), WHOLE)
        assert faults == [0] * len(bodies)
        assert rows == [_with_columns(shown(reader.of.FromString(body), WHOLE), reader.message()) for body in bodies]


def _with_columns(row: Any, message: Any) -> Any:
    """The row without messages that have no fields, which have no column."""
    if not isinstance(row, dict):
        return row
    fields = {each.name: each for each in message.fields}
    return {name: _part(value, fields[name]) for name, value in row.items() if name in fields}


def _part(value: Any, field: Any) -> Any:
    if field.message is None or field.message.name.startswith("google."):
        return value
    if field.message.is_entry:
        return {key: _part(each, field.message.fields[1]) for key, each in value.items()}
    if field.repeated:
        return [_with_columns(each, field.message) for each in value]
    return _with_columns(value, field.message)


def test_bits_beyond_the_64th_of_a_number_are_dropped_and_any_time_is_read() -> None:
    numbers = message_of(("f", Of.TYPE_INT64, {}))
    body = b"\x08" + b"\xff" * 9 + b"\x02"
    assert numbers.of.FromString(body).f == 2**63 - 1
    assert decoded([body], numbers.message())[0] == [{"f": 2**63 - 1}]
    times = message_of(("f", Of.TYPE_MESSAGE, {"type_name": ".google.protobuf.Timestamp"}))
    late = times.of(f={"seconds": 10**12}).SerializeToString()  # in the year 33658
    assert decoded([late], times.message())[0] == [{"f": 10**18}]


@settings(max_examples=examples(200), deadline=None, suppress_health_check=SLOW)
@given(st.data())
def test_changed_bytes_are_malformed_or_what_googles_library_reads(data: st.DataObject) -> None:
    given_schema: Schema = data.draw(schemas())
    good = [each.SerializeToString() for each in data.draw(st.lists(filled(given_schema.of), min_size=1, max_size=4))]
    bodies = [data.draw(_changed(body)) for body in good] + data.draw(st.lists(st.binary(max_size=20), max_size=4))
    rows, faults = decoded(bodies, given_schema.message(), WHOLE)
    for body, row, fault in zip(bodies, rows, faults, strict=True):
        if not fault:
            assert _text(row) == _text(shown(given_schema.of.FromString(body), WHOLE))
            continue
        assert row is None
        if fault not in STRICTER:
            with pytest.raises(DecodeError):
                given_schema.of.FromString(body)


def _text(value: Any) -> str:
    """A value as a text, in which NaN is itself, with the entries of maps sorted."""
    if isinstance(value, dict):
        return str(sorted((repr(key), _text(each)) for key, each in value.items()))
    return str(list(map(_text, value))) if isinstance(value, list) else repr(value)


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
    of = message_of(("a", Of.TYPE_STRING, {}), ("b", Of.TYPE_STRING, REPEATED))
    good = [of.of(a="x", b=["1", "2"]), of.of(), of.of(b=["3"])]
    first, second, third = (each.SerializeToString() for each in good)
    rows, faults = decoded([first, first[:-1], None, second, b"\x0b", third], of.message())
    assert rows == [{"a": "x", "b": ["1", "2"]}, None, None, {"a": None, "b": []}, None, {"a": None, "b": ["3"]}]
    assert faults == [0, kernels.BAD_SIZE, 0, 0, kernels.BAD_GROUP, 0]


def test_fields_without_presence_are_null_or_have_their_default() -> None:
    of = message_of(
        ("n", Of.TYPE_INT32, {}), ("s", Of.TYPE_STRING, {}), ("e", Of.TYPE_ENUM, {}), ("b", Of.TYPE_BOOL, {}),
        ("m", Of.TYPE_MESSAGE, {"type_name": ".google.protobuf.Int64Value"}),
    )  # fmt: skip
    assert decoded([b""], of.message())[0] == [{"n": None, "s": None, "e": None, "b": None, "m": None}]
    assert decoded([b""], of.message(), WHOLE)[0] == [{"n": 0, "s": "", "e": "RED", "b": False, "m": None}]
    written = tagged(1, 0) + tagged(5, b"")
    empty = {"n": 0, "s": None, "e": None, "b": None, "m": {"value": None}}
    assert decoded([written], of.message())[0] == [empty]
    unwrapped = ProtobufReadOptions(unwrap_primitive_wrapper_types=True)
    assert decoded([written], of.message(), unwrapped)[0] == [{**empty, "m": 0}]


def test_defaults_of_proto2() -> None:
    of = message_of(
        ("n", Of.TYPE_INT32, {"default_value": "-7"}), ("d", Of.TYPE_DOUBLE, {"default_value": "0.5"}),
        ("f", Of.TYPE_FLOAT, {"default_value": "-2.5"}), ("s", Of.TYPE_STRING, {"default_value": "ä"}),
        ("e", Of.TYPE_ENUM, {"default_value": "BLUE"}), ("t", Of.TYPE_BOOL, {"default_value": "true"}),
        ("u", Of.TYPE_UINT64, {"default_value": str(2**64 - 1)}), ("z", Of.TYPE_INT32, {"default_value": "0"}),
        ("x", Of.TYPE_STRING, {}),
        syntax="proto2",
    )  # fmt: skip
    for options in (ProtobufReadOptions(), ProtobufReadOptions(enums_as_ints=True, upcast_unsigned_ints=True)):
        full = of.of(n=1, d=0, f=0, s="", e=0, t=False, u=1, z=5, x="x")
        rows, _ = decoded([b"", full.SerializeToString(), None], of.message(), options)
        assert rows == [shown(of.of(), options), shown(full, options), None]


@pytest.mark.parametrize("syntax", ["proto3", "proto2"])
def test_numbers_that_an_enum_does_not_name(syntax: str) -> None:
    of = message_of(("one", Of.TYPE_ENUM, {}), ("many", Of.TYPE_ENUM, REPEATED), syntax=syntax)
    packed = tagged(2, b"".join(varint(each) for each in (1, 99, -7)))
    rows, faults = decoded([tagged(1, 1) + tagged(1, -123) + packed + tagged(2, 5)], of.message())
    assert faults == [0]
    if syntax == "proto2":  # they count as unknown fields
        assert rows == [{"one": "GREEN", "many": ["GREEN", "BLUE"]}]
    else:
        unknown = "UNKNOWN_ENUM_VALUE_Color_"
        assert rows == [{"one": f"{unknown}-123", "many": ["GREEN", f"{unknown}99", "BLUE", f"{unknown}5"]}]


def test_a_field_with_another_wire_type_is_skipped() -> None:
    of = message_of(("n", Of.TYPE_INT32, {}), ("l", Of.TYPE_DOUBLE, REPEATED), ("s", Of.TYPE_STRING, {}))
    body = tagged(1, b"text") + tagged(1, 0.5) + tagged(2, 7) + tagged(2, 0.25) + tagged(3, 5)
    assert decoded([body], of.message()) == ([{"n": None, "l": [0.25], "s": None}], [0])
    assert of.of.FromString(body).l == [0.25]


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"\x08", kernels.CUT_OFF),
        (b"\x08" + b"\xff" * 10 + b"\x01", kernels.BAD_VARINT),
        (b"\x00\x01", kernels.BAD_TAG),
        (b"\x0e\x01", kernels.BAD_TAG),
        (b"\x80\x80\x80\x80\x80\x01\x01", kernels.BAD_TAG),
        (b"\x12\x05abc", kernels.BAD_SIZE),
        (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", kernels.BAD_SIZE),
        (b"\x12\x01\xff", kernels.NOT_UTF8),
        (b"\x19abc", kernels.CUT_OFF),
        (b"\x1a\x09" + b"\0" * 9, kernels.CUT_OFF),
        (b"\x2b", kernels.BAD_GROUP),
        (b"\x2c", kernels.BAD_GROUP),
        (b"\x2b\x34", kernels.BAD_GROUP),
        (b"\x2b" * 200 + b"\x2c" * 200, kernels.BAD_GROUP),
        (b"\x22\x0b\x08" + b"\xff" * 8 + b"\x7f", kernels.BAD_SIZE),
        (b"\x22\x0a\x08" + b"\xff" * 8 + b"\x7f", kernels.OUT_OF_RANGE),
        (b"\x22\x02\x10\x01" + b"\x22\x0b\x10" + b"\xff" * 9 + b"\x01", kernels.OUT_OF_RANGE),
    ],
)
def test_the_fault_of_a_malformed_body(body: bytes, fault: int) -> None:
    of = message_of(
        ("n", Of.TYPE_INT64, {}), ("s", Of.TYPE_STRING, {}), ("d", Of.TYPE_DOUBLE, REPEATED),
        ("t", Of.TYPE_MESSAGE, {"type_name": ".google.protobuf.Timestamp"}),
    )  # fmt: skip
    assert decoded([body], of.message()) == ([None], [fault])
    assert kernels.FAULTS[fault]


def test_unknown_groups_are_skipped_with_all_that_is_in_them() -> None:
    of = message_of(("n", Of.TYPE_INT64, {}))
    group = b"\x2b" + tagged(9, b"text") + b"\x33" + tagged(7, 0.5) + b"\x34" + b"\x2c"
    assert decoded([group + tagged(1, 3) + b"\x2b" * 100 + b"\x2c" * 100], of.message()) == ([{"n": 3}], [0])


def test_columns_stay_below_the_limit_and_no_row_is_lost() -> None:
    of = message_of(("s", Of.TYPE_STRING, {}))
    small, large = of.of(s="x" * 100).SerializeToString(), of.of(s="y" * 2000).SerializeToString()
    rows, faults = decoded([*[small] * 50, large, *[small] * 50], of.message(), limit_bytes=1000)
    assert faults == [0] * 50 + [kernels.TOO_LARGE] + [0] * 50
    assert [row and row["s"] for row in rows] == ["x" * 100] * 50 + [None] + ["x" * 100] * 50


def test_empty_items_cannot_multiply_a_body_beyond_the_limit() -> None:
    file = file_of()
    made = file.message_type.add(name="M")
    wide = made.nested_type.add(name="Wide")
    for number in range(1, 201):
        wide.field.add(name=f"f{number}", number=number, type=Of.TYPE_STRING, label=FieldProto.LABEL_OPTIONAL)
    made.field.add(name="w", number=1, type=Of.TYPE_MESSAGE, type_name=".test.M.Wide", **REPEATED)
    of = schema(file)
    rows, faults = decoded([b"\x0a\x00" * 100, b"\x0a\x00" * 2], of.message(), limit_bytes=50_000)
    assert faults == [kernels.TOO_LARGE, 0]
    assert rows[0] is None
    assert len(rows[1]["w"]) == 2


def test_members_of_a_oneof_cannot_be_cleared_without_end() -> None:
    file = file_of()
    made = file.message_type.add(name="M")
    made.oneof_decl.add(name="choice")
    wide = made.nested_type.add(name="Wide")
    for number in range(1, 1001):
        wide.field.add(name=f"f{number}", number=number, type=Of.TYPE_BOOL, label=FieldProto.LABEL_OPTIONAL)
    for number in (1, 2):
        one = made.field.add(name=f"w{number}", number=number, type=Of.TYPE_MESSAGE, type_name=".test.M.Wide", label=1)
        one.oneof_index = 0
    of = schema(file)
    switch = b"\x0a\x02\x08\x01\x12\x02\x10\x01"
    rows, faults = decoded([switch * 2, switch * 100], of.message(), limit_bytes=200_000)
    assert faults == [0, kernels.TOO_LARGE]
    assert (rows[0]["w1"], rows[0]["w2"]["f1"], rows[0]["w2"]["f2"]) == (None, None, True)


def test_an_empty_message_has_no_column_and_its_field_is_skipped() -> None:
    file = file_of()
    made = file.message_type.add(name="M")
    made.nested_type.add(name="Nothing")
    made.field.add(name="n", number=1, type=Of.TYPE_MESSAGE, type_name=".test.M.Nothing", label=1)
    made.field.add(name="i", number=2, type=Of.TYPE_INT32, label=1)
    of = schema(file)
    assert decoded([of.of(n={}, i=1).SerializeToString()], of.message()) == ([{"i": 1}], [0])


def test_the_kernel_is_compiled_once_for_all_schemas() -> None:
    for kind in (Of.TYPE_STRING, Of.TYPE_ENUM, Of.TYPE_DOUBLE):
        decoded([b"", None], message_of(("f", kind, {})).message())
    assert len(protobuf_kernels.decode_protobuf.signatures) == 1
