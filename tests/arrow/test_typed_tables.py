"""Typed keys and values without Spark, equal to those of the Spark source."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from sparklog.arrow import (
    avro_format,
    json_format,
    protobuf_format,
    read_table,
    registry_format,
    scan_polars,
    string_format,
)
from sparklog.base.errors import ConfigError, MalformedRecord, SchemaError
from sparklog.records.records import Record, write_records
from sparklog.schemas.framing import frame_of
from sparklog.schemas.registry import UnknownSchema
from support.schemas.avro import written
from support.schemas.protobuf import classes, compiled
from support.schemas.registry import schema_registry

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
NEWER = {
    **ORDER,
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}
FIELDS = [pa.field("amount", pa.int32()), pa.field("to", pa.string())]


@pytest.fixture
def log(tmp_path: Path) -> str:
    return str(tmp_path)


def write(log: str, values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None) -> None:
    """A topic `orders` with these values."""
    folder = Path(log, "orders-0")
    folder.mkdir()
    records = [
        Record(offset=offset, key=keys[offset] if keys else None, value=value) for offset, value in enumerate(values)
    ]
    (folder / f"{0:020d}.log").write_bytes(write_records(records))


def values(log: str, **options: Any) -> list[Any]:
    return read_table(log, "orders", columns=["value"], **options)["value"].to_pylist()


def test_json_and_texts_are_typed(log: str) -> None:
    write(log, [b'{"amount": 12, "to": "x"}', None, b'{"amount": 3, "more": []}'], [b"alice", "é".encode(), None])
    table = read_table(log, "orders", columns=["key", "value"], key=string_format(), value=json_format(FIELDS))
    assert table.schema == pa.schema([("key", pa.string()), ("value", pa.struct(FIELDS))])
    assert table.to_pylist() == [
        {"key": "alice", "value": {"amount": 12, "to": "x"}},
        {"key": "é", "value": None},
        {"key": None, "value": {"amount": 3, "to": None}},
    ]


def test_avro_is_read_as_the_reader_wants_it(log: str) -> None:
    write(log, written(ORDER, [{"id": 1}, {"id": -2}]))
    assert values(log, value=avro_format(json.dumps(ORDER))) == [{"id": 1}, {"id": -2}]
    newer = avro_format(json.dumps(ORDER), reader_schema=json.dumps(NEWER))
    assert values(log, value=newer) == [{"id": 1, "note": None}, {"id": -2, "note": None}]


def test_protobuf_is_read_as_its_message(log: str, tmp_path: Path) -> None:
    text = 'syntax = "proto3"; package shop; enum Kind { A = 0; B = 7; } message Order { int32 id = 1; Kind kind = 2; }'
    content = compiled(text, tmp_path / "proto")
    order = classes(content)["shop.Order"]
    write(log, [order(id=3, kind=7).SerializeToString(), b"", None])
    path = str(tmp_path / "proto" / "orders.proto.desc")
    assert values(log, value=protobuf_format(path)) == [{"id": 3, "kind": "B"}, {"id": None, "kind": None}, None]
    numbers = protobuf_format(
        base64.b64encode(content).decode(), "shop.Order", enums_as_ints=True, emit_default_values=True
    )
    assert values(log, value=numbers) == [{"id": 3, "kind": 7}, {"id": 0, "kind": 0}, None]


def test_bodies_name_their_schemas_in_a_registry(log: str) -> None:
    with schema_registry() as registry:
        old, new = (registry.register("orders-value", each) for each in (ORDER, NEWER))
        bodies = [*written(ORDER, [{"id": 1}]), *written(NEWER, [{"id": 2**40, "note": "n"}])]
        write(log, [frame_of(number) + body for number, body in zip((old, new), bodies, strict=True)])
        found = values(log, value=registry_format(registry.url, "orders-value"))
        assert found == [{"id": 1, "note": None}, {"id": 2**40, "note": "n"}]
        only = registry_format(registry.url, "orders-value", reader_schema=json.dumps(ORDER | {"fields": []}))
        assert values(log, value=only) == [{}, {}]
        with pytest.raises(UnknownSchema):
            registry_format(registry.url, "payments-value")


def test_malformed_records_fail_the_read_or_are_left_out_or_explained(log: str) -> None:
    write(log, [b'{"amount": 1}', b"{", b'{"amount": 2}'])
    of = json_format(FIELDS[:1])
    with pytest.raises(MalformedRecord, match="orders-0 offset 1"):
        values(log, value=of)
    assert values(log, value=of, mode="DROPMALFORMED") == [{"amount": 1}, {"amount": 2}]
    table = read_table(log, "orders", columns=["value", "_corrupt_record"], value=of, mode="PERMISSIVE")
    assert table["value"].to_pylist() == [{"amount": 1}, None, {"amount": 2}]
    first, corrupt, last = table["_corrupt_record"].to_pylist()
    assert first is last is None
    assert corrupt["value"] == b"{"
    assert corrupt["reason"].startswith("the value: ")


def test_polars_takes_fields_of_typed_values(log: str) -> None:
    write(log, [b'{"amount": 12, "to": "x"}', b'{"amount": 3}'])
    frame = scan_polars(log, "orders", value=json_format(FIELDS))
    assert frame.select(pl.col("value").struct.field("amount").sum()).collect().item() == 15


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        (lambda: json_format([pa.field("at", pa.time32("s"))]), SchemaError, "time"),
        (lambda: protobuf_format("orders.desc"), SchemaError, "orders.desc"),
        (lambda: read_table(".", "orders", columns=["_corrupt_record"]), ConfigError, "no column _corrupt_record"),
    ],
)
def test_what_cannot_be_read_is_refused(wrong: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        wrong()
