"""Schemas as text: valid ones, and the place and reason of each mistake."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from sparklog.base.errors import SchemaError
from sparklog.schemas.avro import (
    AvroArray,
    AvroDecimal,
    AvroEnum,
    AvroFixed,
    AvroKind,
    AvroLogical,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroUnion,
    parse_avro,
)
from sparklog.schemas.columns import MOST_COLUMNS, lay_out


def parse(node: Any, *references: Any) -> Any:
    return parse_avro(json.dumps(node), [json.dumps(each) for each in references])


def test_all_types() -> None:
    assert parse_avro("string") == parse("string") == parse({"type": "string"}) == AvroPrimitive(AvroKind.STRING)
    assert parse({"type": {"type": "int"}}) == AvroPrimitive(AvroKind.INT)
    assert parse({"type": "array", "items": ["null", "int"]}) == AvroArray(
        AvroUnion((AvroPrimitive(AvroKind.NULL), AvroPrimitive(AvroKind.INT)))
    )
    assert parse({"type": "map", "values": "bytes"}) == AvroMap(AvroPrimitive(AvroKind.BYTES))
    enum = parse({"type": "enum", "name": "E", "symbols": ["A"], "default": "A", "doc": "a word"})
    assert enum == AvroEnum("E", ("A",), (), "A")


def test_names_have_the_namespace_of_the_place() -> None:
    inner = {"type": "record", "name": "Inner", "aliases": ["Old", "x.Older"], "fields": []}
    schema = parse(
        {
            "type": "record",
            "name": "Outer",
            "namespace": "a.b",
            "fields": [
                {"name": "first", "type": inner},
                {"name": "again", "type": "Inner"},
                {"name": "full", "type": "a.b.Inner"},
                {"name": "other", "type": {"type": "fixed", "name": "c.F", "size": 1}},
            ],
        }
    )
    expected = AvroRecord("a.b.Inner", (), ("a.b.Old", "x.Older"))
    assert [field.type for field in schema.fields] == [expected] * 3 + [AvroFixed("c.F", 1)]


def test_references_define_names() -> None:
    address = {"type": "record", "name": "shop.Address", "fields": []}
    customer = {"type": "record", "name": "shop.Customer", "fields": [{"name": "at", "type": "Address"}]}
    assert parse({"type": "array", "items": "shop.Customer"}, address, customer).items.fields[0].type.name == (
        "shop.Address"
    )


def test_logical_types_that_are_unknown_or_do_not_fit_are_ignored() -> None:
    assert parse({"type": "int", "logicalType": "date"}).logical is AvroLogical.DATE
    for node in (
        {"type": "long", "logicalType": "date"},
        {"type": "long", "logicalType": "timestamp-nanos"},
        {"type": "long", "logicalType": ["date"]},
    ):
        assert parse(node) == AvroPrimitive(AvroKind.LONG)
    decimal = {"type": "bytes", "logicalType": "decimal"}
    assert parse({**decimal, "precision": 4, "scale": 2}).decimal == AvroDecimal(4, 2)
    for wrong in ({}, {"precision": 0}, {"precision": 4, "scale": 5}, {"precision": "4"}):
        assert parse({**decimal, **wrong}).decimal is None
    fixed = {"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal"}
    assert parse({**fixed, "precision": 4}).decimal == AvroDecimal(4, 0)
    for precision in (5, 39, 10**4000):
        assert parse({**fixed, "precision": precision}).decimal is None
    for size, digits in ((1, 2), (4, 9), (8, 18), (16, 38), (2**31 - 1, 38)):
        assert parse({**fixed, "size": size, "precision": digits}).decimal == AvroDecimal(digits, 0)
        if size < 2**31 - 1:
            assert parse({**fixed, "size": size, "precision": digits + 1}).decimal is None


def field(of: Any, **more: Any) -> Any:
    return {"type": "record", "name": "R", "fields": [{"name": "f", "type": of, **more}]}


TREE = field(["null", {"type": "array", "items": "R"}])


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (TREE, "schema.f[1].items: R contains itself, and Spark has no type for that"),
        (field("Unknown"), "schema.f: no type 'Unknown'"),
        (field({"type": "array"}), "schema.f: the array needs `items`"),
        (field({"type": "map"}), "schema.f: the map needs `values`"),
        (field(None), "schema.f: a type is a name, a list, or an object"),
        (field([]), "schema.f: a union needs at least one type"),
        (field(["int", ["null", "string"]]), "schema.f[1]: a union must not contain a union"),
        (field(["int", {"type": "int", "logicalType": "date"}]), "schema.f[1]: the union has a second int"),
        (field({"type": "fixed", "name": "F", "size": -1}), "schema.f: fixed F needs a `size`"),
        (field({"type": "enum", "name": "E", "symbols": ["A", "A"]}), "enum E needs a list of different `symbols`"),
        (field({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}), 'the default "B" of enum E'),
        (field({"type": "enum", "name": "1E", "symbols": ["A"]}), "enum needs a valid `name`"),
        (field("int", aliases="g"), "`aliases` must be a list of texts"),
        ({"type": "record", "name": "R"}, "record R needs a list of `fields`"),
        ({"type": "record", "name": "R", "fields": [{"type": "int"}]}, "a field is an object with a valid `name`"),
        ({**field("int"), "fields": field("int")["fields"] * 2}, "record R has two fields 'f'"),
        (field(field("int")), "schema.f: R is defined twice"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(node: Any, reason: str) -> None:
    with pytest.raises(SchemaError) as refused:
        parse(node)
    assert reason in str(refused.value)


@pytest.mark.parametrize("text", ["", "{", "strin", "[" * 100_000])
def test_text_that_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(SchemaError):
        parse_avro(text)


def test_types_that_are_nested_too_deep_are_refused() -> None:
    node: Any = "int"
    for _ in range(100):
        node = {"type": "array", "items": node}
    with pytest.raises(SchemaError, match="nested more than 64"):
        parse(node)


def test_names_that_multiply_a_schema_are_refused() -> None:
    node: Any = {"type": "record", "name": "R0", "fields": [{"name": "f", "type": "int"}]}
    for level in range(1, 40):
        node = {
            "type": "record",
            "name": f"R{level}",
            "fields": [{"name": "a", "type": node}, {"name": "b", "type": f"R{level - 1}"}],
        }
    with pytest.raises(SchemaError, match=f"more than {MOST_COLUMNS} columns"):
        lay_out(parse(node))


def test_a_decimal_that_spark_does_not_have_is_refused() -> None:
    with pytest.raises(SchemaError, match="a decimal of 39 digits does not fit Spark's 38: give a reader schema"):
        lay_out(parse(field({"type": "bytes", "logicalType": "decimal", "precision": 39})))


def test_columns_have_sparks_names_and_nullability() -> None:
    schema = parse(
        {
            "type": "record",
            "name": "R",
            "fields": [
                {"name": "list", "type": {"type": "array", "items": ["null", "int"]}},
                {"name": "map", "type": ["null", {"type": "map", "values": "float"}]},
                {"name": "union", "type": ["null", "string", "boolean"]},
            ],
        }
    )
    expected = pa.struct(
        [
            pa.field("list", pa.list_(pa.field("element", pa.int32())), nullable=False),
            pa.field("map", pa.map_(pa.string(), pa.field("value", pa.float32(), nullable=False))),
            pa.field("union", pa.struct([("member0", pa.string()), ("member1", pa.bool_())])),
        ]
    )
    assert lay_out(schema).root.type == expected
