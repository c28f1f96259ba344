"""Schemas as Spark's SQL writes them: the same result as Spark's own parser, and refused texts."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from sparklog.base.errors import SchemaError
from sparklog.spark.source.ddl import parse_ddl

VALID = [
    "id bigint",
    "id: long, name STRING NOT NULL, `a ``b` int comment 'a text'",
    "a boolean, b tinyint, c byte, d smallint, e short, f int, g integer, h float, i real, j double, k binary",
    "a date, b timestamp, c timestamp_ntz, d decimal, e decimal(5), f DECIMAL(38, 18), g dec(1,1), h numeric",
    "items array<struct<sku: string, count int NOT NULL COMMENT 'n'>>, m map<string,array<map<int, double>>>",
    "struct<a: int, b: struct<c: array<string>>>",
    "struct int, array string, map long",
    "  a\n int ,\tb string  ",
]


@pytest.mark.parametrize("text", VALID)
def test_types_are_those_of_sparks_parser(spark, text):
    expected = StructType.fromDDL(text)
    found = parse_ddl(text)
    assert found.simpleString() == expected.simpleString()
    assert [field.nullable for field in found] == [field.nullable for field in expected]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the name of a field where it has 'the end'"),
        ("id", "a type where it has 'the end'"),
        ("id bigint,", "the name of a field"),
        ("id bigint name string", "a comma or the end where it has ' name string'"),
        ("id varbinary", "a type where it has ' varbinary'"),
        ("a array<int", "'>' where it has 'the end'"),
        ("a map<int>", "',' where it has '>'"),
        ("a int not", "'null' where it has 'the end'"),
        ("a int comment b", "a text in quotes"),
        ("a decimal(x)", "a number where it has 'x)'"),
        ("a decimal(39)", "at most 38 digits"),
        ("a decimal(4, 5)", "at most 38 digits"),
        ("a int; b int", "a comma or the end where it has '; b int'"),
        ("a int, A string", "two fields of one name"),
        ("a " + "array<" * 60 + "int" + ">" * 60, "nested more than 50"),
    ],
)
def test_what_is_not_valid_is_refused_with_the_place(text, said):
    with pytest.raises(SchemaError) as refused:
        parse_ddl(text)
    assert said in str(refused.value)
