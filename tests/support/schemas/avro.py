"""Avro schemas, values and evolved schemas for Hypothesis, and fastavro's answer in the shape of Arrow's `to_pylist`.

Members of general unions are of different groups, so that a Python value says which member it is.
"""

from __future__ import annotations

import datetime
import io
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
from hypothesis import strategies as st

from sparklog.schemas.avro import parse_avro
from sparklog.schemas.avro_decoding import NULL_ENTRY, AvroDecoder

Json = Any
UTC = datetime.UTC
EPOCH = datetime.datetime(1970, 1, 1)
DAYS = st.dates(datetime.date(1600, 1, 1), datetime.date(2400, 1, 1))
MICROS = st.integers(-(10**16), 10**16)
MILLIS = st.integers(-(10**13), 10**13).map(lambda each: each * 1000)


def _at(micros: int) -> datetime.datetime:
    return EPOCH + datetime.timedelta(microseconds=micros)


def _decimal(unscaled: int, scale: int) -> Decimal:
    """A decimal of any number of digits: arithmetic would round it to 28."""
    return Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale))


SIMPLE: list[tuple[Json, st.SearchStrategy[Any]]] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("bytes", st.binary(max_size=20)),
    ("string", st.text(max_size=20)),
]
LOGICAL: list[tuple[Json, st.SearchStrategy[Any]]] = [
    ({"type": "int", "logicalType": "date"}, DAYS),
    ({"type": "int", "logicalType": "time-millis"}, st.integers(0, 86_399_999).map(lambda ms: _at(ms * 1000).time())),
    ({"type": "long", "logicalType": "time-micros"}, st.integers(0, 86_399_999_999).map(lambda us: _at(us).time())),
    ({"type": "long", "logicalType": "timestamp-millis"}, MILLIS.map(lambda us: _at(us).replace(tzinfo=UTC))),
    ({"type": "long", "logicalType": "timestamp-micros"}, MICROS.map(lambda us: _at(us).replace(tzinfo=UTC))),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, MILLIS.map(_at)),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, MICROS.map(_at)),
    ({"type": "string", "logicalType": "uuid"}, st.uuids()),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 4},
        st.integers(-(10**38) + 1, 10**38 - 1).map(lambda each: _decimal(each, 4)),
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 0},
        st.integers(-99_999, 99_999).map(Decimal),
    ),
]
GROUPS = {
    "int": "whole", "long": "whole", "float": "real", "double": "real", "string": "text", "enum": "text",
    "bytes": "bytes", "fixed": "bytes", "boolean": "boolean", "record": "object", "map": "object", "array": "array",
}  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """A schema, and what values of it may be."""

    schema: Json
    values: st.SearchStrategy[Any]


def names(kind: str, counter: list[int]) -> str:
    counter[0] += 1
    return f"{kind}{counter[0]}"


@st.composite
def samples(draw: st.DrawFn, *, logical: bool = True) -> Sample:
    """A record with fields of any type; names of types differ."""
    counter = [0]
    return draw(_records(counter, 3, logical))


def _types(counter: list[int], depth: int, logical: bool) -> st.SearchStrategy[Sample]:
    simple = st.sampled_from(SIMPLE + (LOGICAL if logical else [])).map(lambda each: Sample(*each))
    leaves = [simple, _fixed(counter, logical), _enums(counter)]
    if not depth:
        return st.one_of(leaves)
    parts = [_records(counter, depth - 1, logical), _lists(counter, depth - 1, logical)]
    return st.one_of(*leaves, *parts, _optional(counter, depth - 1, logical), _unions(counter, depth - 1, logical))


@st.composite
def _fixed(draw: st.DrawFn, counter: list[int], logical: bool) -> Sample:
    size = draw(st.integers(0, 20))
    schema = {"type": "fixed", "name": names("F", counter), "size": size}
    if logical and size > 8 and draw(st.booleans()):
        schema |= {"logicalType": "decimal", "precision": 20, "scale": 3}
        return Sample(schema, st.integers(-(10**20) + 1, 10**20 - 1).map(lambda each: _decimal(each, 3)))
    return Sample(schema, st.binary(min_size=size, max_size=size))


@st.composite
def _enums(draw: st.DrawFn, counter: list[int]) -> Sample:
    symbols = [f"S{i}" for i in range(draw(st.integers(1, 4)))]
    return Sample({"type": "enum", "name": names("E", counter), "symbols": symbols}, st.sampled_from(symbols))


@st.composite
def _records(draw: st.DrawFn, counter: list[int], depth: int, logical: bool) -> Sample:
    name = names("R", counter)
    fields = [(f"f{i}", draw(_types(counter, depth, logical))) for i in range(draw(st.integers(0, 4)))]
    schema = {"type": "record", "name": name, "fields": [{"name": each, "type": of.schema} for each, of in fields]}
    return Sample(schema, st.fixed_dictionaries({each: of.values for each, of in fields}))


@st.composite
def _lists(draw: st.DrawFn, counter: list[int], depth: int, logical: bool) -> Sample:
    items = draw(_types(counter, depth, logical))
    if draw(st.booleans()):
        return Sample({"type": "array", "items": items.schema}, st.lists(items.values, max_size=4))
    return Sample(
        {"type": "map", "values": items.schema}, st.dictionaries(st.text(max_size=5), items.values, max_size=4)
    )


@st.composite
def _optional(draw: st.DrawFn, counter: list[int], depth: int, logical: bool) -> Sample:
    of = draw(_types(counter, depth, logical).filter(lambda each: not _is_union(each.schema) and each.schema != "null"))
    schema = draw(st.permutations(["null", of.schema]))
    return Sample(schema, st.none() | of.values)


@st.composite
def _unions(draw: st.DrawFn, counter: list[int], depth: int, logical: bool) -> Sample:
    drawn = draw(st.lists(_types(counter, depth, logical), min_size=1, max_size=4))
    members = list({_group(each.schema): each for each in drawn if _group(each.schema)}.values())
    if draw(st.booleans()) or not members:
        members.insert(draw(st.integers(0, len(members))), Sample("null", st.none()))
    return Sample([each.schema for each in members], st.one_of([each.values for each in members]))


def _is_union(schema: Json) -> bool:
    return isinstance(schema, list)


def kind(schema: Json) -> str:
    """The name of a type: int, record, union …"""
    return "union" if isinstance(schema, list) else schema if isinstance(schema, str) else schema["type"]


def _group(schema: Json) -> str | None:
    """The group of a member; None if it must not be one: other types have the same Python values."""
    if isinstance(schema, dict) and "logicalType" in schema:
        return None
    return GROUPS.get(kind(schema))


# What fastavro reads, as Arrow shows it.


def shown(schema: Json, value: Any) -> Any:
    """Return a value that fastavro has read, as `to_pylist` shows what the decoder has read."""
    match kind(schema):
        case "union":
            return _shown_union(schema, value)
        case "record":
            return {each["name"]: shown(each["type"], value[each["name"]]) for each in schema["fields"]}
        case "array":
            return [shown(schema["items"], each) for each in value]
        case "map":
            return [(key, shown(schema["values"], each)) for key, each in value.items()]
    if isinstance(value, datetime.time):
        micros = (value.hour * 3600 + value.minute * 60 + value.second) * 10**6 + value.microsecond
        return micros // (1000 if schema["logicalType"] == "time-millis" else 1)
    return str(value) if isinstance(value, uuid.UUID) else value


def _shown_union(schema: list[Json], value: Any) -> Any:
    members = [each for each in schema if each != "null"]
    if value is None:
        return None
    if len(members) == 1:
        return shown(members[0], value)
    found = next(position for position, each in enumerate(members) if _fits(each, value))
    return {f"member{i}": shown(each, value) if i == found else None for i, each in enumerate(members)}


def _fits(schema: Json, value: Any) -> bool:
    of = {
        bool: "boolean", int: "whole", float: "real", str: "text", bytes: "bytes", dict: "object", list: "array"
    }[type(value)]  # fmt: skip
    return GROUPS[kind(schema)] == of


# Evolution.


@st.composite
def evolved(draw: st.DrawFn, schema: Json) -> Json:
    """A schema that can read what `schema` has written, by changes that Avro allows."""
    match kind(schema):
        case "record":
            return draw(_evolved_record(schema))
        case "array":
            return {"type": "array", "items": draw(evolved(schema["items"]))}
        case "map":
            return {"type": "map", "values": draw(evolved(schema["values"]))}
        case "union":
            return draw(st.permutations([draw(evolved_member(each)) for each in schema]))
        case "null":
            return "null"
        case _:
            return draw(st.sampled_from([draw(evolved_member(schema)), ["null", schema], schema]))


@st.composite
def evolved_member(draw: st.DrawFn, schema: Json) -> Json:
    match kind(schema):
        case "record":
            return draw(_evolved_record(schema))
        case "enum":
            fewer = schema["symbols"][: draw(st.integers(1, 4))]
            return {**schema, "symbols": ["Other", *reversed(fewer)], "default": "Other"}
        case "int" if isinstance(schema, str):
            return draw(st.sampled_from(["int", "long"]))
        case "float":
            return draw(st.sampled_from(["float", "double"]))
        case _:
            return schema


@st.composite
def _evolved_record(draw: st.DrawFn, schema: Json) -> Json:
    kept = draw(st.lists(st.sampled_from(schema["fields"]), unique_by=id)) if schema["fields"] else []
    fields = [{"name": each["name"], "type": draw(evolved(each["type"]))} for each in kept]
    for each in fields:
        if draw(st.booleans()):
            each |= {"name": f"renamed_{each['name']}", "aliases": [each["name"]]}
    added = [
        {"name": "a1", "type": "string", "default": "größer"},
        {"name": "a2", "type": ["null", "int"], "default": None},
        {"name": "a3", "type": {"type": "array", "items": "long"}, "default": [1, -2, 3]},
        {"name": "a4", "type": {"type": "map", "values": ["null", "double"]}, "default": {"k": None}},
        {"name": "a5", "type": "boolean", "default": True},
    ]
    fields += draw(st.lists(st.sampled_from(added), unique_by=lambda each: each["name"]))
    return {**schema, "fields": draw(st.permutations(fields))}


# Both readers.


def written(schema: Json, values: Sequence[Any]) -> list[bytes]:
    """Return the bodies that fastavro writes."""
    parsed = fastavro.parse_schema(schema)
    bodies = []
    for value in values:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, value)
        bodies.append(stream.getvalue())
    return bodies


def read_by_fastavro(body: bytes, writer: Json, reader: Json | None = None) -> Any:
    """Return what fastavro reads, in the shape of `decoded`."""
    value = fastavro.schemaless_reader(io.BytesIO(body), writer, reader)
    return shown(writer if reader is None else reader, value)


def decoded(
    bodies: Sequence[bytes | None], writer: Json, reader: Json | None = None, *, limit_bytes: int | None = None
) -> tuple[list[Any], list[int]]:
    """Return what the decoder reads, and the fault of each body."""
    decoder = AvroDecoder(
        parse_avro(json.dumps(writer if reader is None else reader)),
        **({} if limit_bytes is None else {"limit_bytes": limit_bytes}),
    )
    entry = decoder.add_writer(parse_avro(json.dumps(writer)))
    return run(decoder, bodies, [entry] * len(bodies))


def run(decoder: AvroDecoder, bodies: Sequence[bytes | None], entries: Sequence[int]) -> tuple[list[Any], list[int]]:
    """Decode bodies, each with its entry; check the arrays."""
    sizes = [len(body or b"") for body in bodies]
    ends = np.cumsum(sizes, dtype=np.int64)
    faults = np.zeros(len(bodies), np.uint8)
    chosen = [NULL_ENTRY if body is None else entry for body, entry in zip(bodies, entries, strict=True)]
    data = np.frombuffer(b"".join(body or b"" for body in bodies), np.uint8)
    rows: list[Any] = []
    for array, before in decoder.decode(data, ends - sizes, ends, np.array(chosen, np.int64), faults):
        assert before == len(rows)
        assert array.type == decoder.type
        array.validate(full=True)
        rows += array.to_pylist()
    assert len(rows) == len(bodies)
    return rows, faults.tolist()
