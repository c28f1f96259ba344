"""Decoders of whole columns: bodies of Confluent's own serializers, schemas of a registry, and plain texts."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    header_schema_id_serializer,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
    topic_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from sparklog.base.errors import RegistryError, SchemaError
from sparklog.records.schema import HEADERS_TYPE
from sparklog.schemas import column_kernels as kernels
from sparklog.schemas.formats import AvroFormat, FramedAvroFormat, StringFormat, type_of
from sparklog.schemas.framing import frame_of
from sparklog.schemas.pieces import Decoder
from sparklog.schemas.registry import Registry, SchemaText
from sparklog.schemas.registry_options import RegistryOptions
from sparklog.schemas.schema_cache import MOST_UNKNOWN
from support.schemas.registry import FakeRegistry, schema_registry

pytestmark = pytest.mark.slow

ORDER_1 = {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "id", "type": "int"}]}
ORDER_2 = {
    **ORDER_1,
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with schema_registry() as running:
        yield running


def text(schema: Any) -> SchemaText:
    return SchemaText("AVRO", json.dumps(schema))


def framed(registry: FakeRegistry, reader: Any, writers: Any = None, column: str = "value") -> Decoder:
    options = RegistryOptions(urls=(registry.url,))
    of = FramedAvroFormat(reader=text(reader), writers=writers or {}, registry=options)
    return pickle.loads(pickle.dumps(of)).decoder(column)


def rows(decoder: Decoder, payloads: list[bytes | None], headers: Any = None) -> tuple[list[Any], list[str | None]]:
    """Return the values of a decoder, and the reasons of malformed rows."""
    values: list[Any] = []
    reasons: list[str | None] = []
    lists = None if headers is None else pa.array(headers, HEADERS_TYPE)
    for piece in decoder.decode(pa.array(payloads, pa.binary()), lists):
        assert piece.values.type == decoder.type
        values += piece.values.to_pylist()
        reasons += [piece.explain(row) if fault else None for row, fault in enumerate(piece.faults)]
    return values, reasons


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        (topic_subject_name_strategy, "orders-value"),
        (record_subject_name_strategy, "shop.Order"),
        (topic_record_subject_name_strategy, "orders-shop.Order"),
    ],
)
@pytest.mark.parametrize("in_headers", [False, True])
def test_what_confluents_serializer_writes_is_read(
    registry: FakeRegistry, strategy: Any, subject: str, in_headers: bool
) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    config = {"subject.name.strategy": strategy}
    if in_headers:
        config["schema.id.serializer"] = header_schema_id_serializer
    payloads, headers = [], []
    for schema, value in ((ORDER_1, {"id": 1}), (ORDER_2, {"id": 2**40, "note": "new"}), (ORDER_2, {"id": 3})):
        context = SerializationContext("orders", MessageField.VALUE, headers=[])
        payloads.append(AvroSerializer(client, json.dumps(schema), conf=config)(value, context))
        headers.append([{"key": key, "value": each} for key, each in context.headers])
    assert all(len(each) == in_headers for each in headers)
    latest = Registry(RegistryOptions(urls=(registry.url,))).version(subject)
    decoder = framed(registry, json.loads(latest.schema.text))
    expected = [{"id": 1, "note": None}, {"id": 2**40, "note": "new"}, {"id": 3, "note": None}]
    assert rows(decoder, payloads, headers) == (expected, [None] * 3)


@pytest.mark.parametrize(
    ("schema", "reader", "value", "read"),
    [
        ("bytes", "bytes", b"\x02ab", b"\x02ab"),
        ("bytes", ["null", "string"], b"", ""),
        ("bytes", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}, b"\xff", Decimal("-0.1")),
        ("string", "string", "ab", "ab"),
        ("long", "double", -3, -3.0),
        (["null", "bytes"], ["null", "bytes"], b"ab", b"ab"),
    ],
)
def test_schemas_that_are_no_records(registry: FakeRegistry, schema: Any, reader: Any, value: Any, read: Any) -> None:
    serializer = AvroSerializer(SchemaRegistryClient({"url": registry.url}), json.dumps(schema))
    payload = serializer(value, SerializationContext("t", MessageField.VALUE))
    decoder = framed(registry, reader)
    assert rows(decoder, [payload, payload]) == ([read, read], [None, None])


def body(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def test_schemas_that_the_plan_brings_are_not_asked_for(registry: FakeRegistry) -> None:
    guid = UUID(int=7)
    decoder = framed(registry, ORDER_2, {1: text(ORDER_1), guid: text(ORDER_2)})
    payloads = [frame_of(1) + body(ORDER_1, {"id": 5}), frame_of(guid) + body(ORDER_2, {"id": 6}), None]
    assert rows(decoder, payloads)[0] == [{"id": 5, "note": None}, {"id": 6, "note": None}, None]
    assert registry.requests == []


def test_a_schema_is_asked_for_once(registry: FakeRegistry) -> None:
    number = registry.register("orders-value", ORDER_1)
    for _ in range(2):  # two tasks
        decoder = framed(registry, ORDER_2)
        payload = frame_of(number) + body(ORDER_1, {"id": 5})
        assert rows(decoder, [payload, payload])[0] == [{"id": 5, "note": None}] * 2
    assert registry.requests == [f"/schemas/ids/{number}"]


def test_malformed_rows_say_why(registry: FakeRegistry, caplog: pytest.LogCaptureFixture) -> None:
    other = registry.register("other", {**ORDER_1, "name": "Customer"})
    protobuf = registry.add("proto", {"schema": "message A {}", "schemaType": "PROTOBUF"})["id"]
    broken = registry.register("broken", "{")
    good = frame_of(50) + body(ORDER_1, {"id": 5})
    decoder = framed(registry, ORDER_1, {50: text(ORDER_1)})
    junk = [b"", b"junk", frame_of(77), frame_of(other), frame_of(protobuf), frame_of(broken), frame_of(50)]
    values, reasons = rows(decoder, [good, *junk, None, good])
    assert values == [{"id": 5}, *[None] * 8, {"id": 5}]
    assert reasons[0] is reasons[8] is reasons[9] is None
    assert reasons[1] == reasons[2] == kernels.FAULTS[kernels.NO_FRAME]
    for reason, said in zip(
        reasons[3:8],
        [
            "has no schema 77",
            f"schema {other}: the writer's schema cannot be read as the reader's: the value: record shop.Customer",
            f"schema {protobuf}: the schema is PROTOBUF, not AVRO",
            f"schema {broken}: an Avro schema must be JSON",
            kernels.FAULTS[kernels.CUT_OFF],
        ],
        strict=True,
    ):
        assert said in str(reason)
    assert f"the records of schema {other} are malformed" in caplog.text  # modes that read on must not hide it


def test_a_registry_that_is_down_fails_and_names_the_schema(registry: FakeRegistry) -> None:
    registry.failures = [500] * 3
    with pytest.raises(RegistryError, match=r"the records of schema 9 cannot be read: .* HTTP status 500"):
        rows(framed(registry, ORDER_1), [frame_of(9)])


def test_a_column_that_names_any_number_of_schemas_does_not_ask_for_all(registry: FakeRegistry) -> None:
    payloads = [frame_of(1000 + i) for i in range(500)]
    with pytest.raises(RegistryError, match="schemas that the registry does not have, such as 1000, 1001"):
        rows(framed(registry, ORDER_1), payloads)
    assert len(registry.requests) == MOST_UNKNOWN + 1


def test_bodies_without_a_frame() -> None:
    decoder = AvroFormat(writer=text(ORDER_1), reader=text(ORDER_2)).decoder("value")
    assert decoder.type == type_of(text(ORDER_2))
    column = pa.array([b"junk", b"\x02", None, b""], pa.binary()).slice(1)
    (piece,) = decoder.decode(column, None)
    assert piece.values.to_pylist() == [{"id": 1, "note": None}, None, None]
    assert piece.faults.tolist() == [0, 0, kernels.CUT_OFF]
    with pytest.raises(SchemaError, match="string cannot be read as record"):
        AvroFormat(writer=text("string"), reader=text(ORDER_2)).decoder("value")


def test_texts() -> None:
    decoder = StringFormat().decoder("value")
    assert rows(decoder, ["ä".encode(), b"", None]) == (["ä", "", None], [None] * 3)
    bad = kernels.FAULTS[kernels.NOT_UTF8]
    assert rows(decoder, [b"\xff", "ä".encode(), None, b"", b"\xed\xa0\x80"]) == (
        [None, "ä", None, "", None],
        [bad, None, None, None, bad],
    )
