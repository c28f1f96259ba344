"""Columns of Protobuf: bodies of Confluent's serializer, messages of a registry's schemas, bodies without a frame."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

from sparklog.base.errors import RegistryError
from sparklog.records.schema import HEADERS_TYPE
from sparklog.schemas import column_kernels as kernels
from sparklog.schemas.framing import HEADERS, SchemaId, frame_of, unframe_messages
from sparklog.schemas.pieces import Decoder
from sparklog.schemas.protobuf import ProtobufReadOptions
from sparklog.schemas.protobuf_descriptors import from_descriptor_set
from sparklog.schemas.protobuf_formats import FramedProtobufFormat, ProtobufFormat
from sparklog.schemas.registry_options import RegistryOptions
from support.schemas.protobuf import classes, compiled, tagged, varint
from support.schemas.registry import FakeRegistry, schema_registry

pytestmark = pytest.mark.slow

ORDER_1 = """
syntax = "proto3"; package shop;
message Customer { string name = 1; }
message Order { int32 id = 1; message Line { string sku = 1; } repeated Line lines = 3; }
"""
ORDER_2 = """
syntax = "proto3"; package shop;
message Order { int64 id = 1; optional string note = 2; message Line { string sku = 1; } repeated Line lines = 3; }
"""


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with schema_registry() as running:
        yield running


def framed(registry: FakeRegistry, content: bytes, message: str, writers: Any = None) -> Decoder:
    of = FramedProtobufFormat(
        message=from_descriptor_set(content).message(message),
        options=ProtobufReadOptions(),
        writers=writers or {},
        registry=RegistryOptions(urls=(registry.url,)),
    )
    return pickle.loads(pickle.dumps(of)).decoder("value")


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


@pytest.mark.parametrize("in_headers", [False, True])
def test_what_confluents_serializer_writes_is_read(registry: FakeRegistry, tmp_path: Path, in_headers: bool) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    config: dict[str, Any] = {"use.deprecated.format": False}
    if in_headers:
        config["schema.id.serializer"] = header_schema_id_serializer
    old, new = (classes(compiled(text, tmp_path)) for text in (ORDER_1, ORDER_2))
    written = [
        old["shop.Order"](id=1, lines=[{"sku": "a"}]), new["shop.Order"](id=2**40, note="new"),
        old["shop.Customer"](name="x"), type(old["shop.Order"]().lines.add())(sku="b"),
    ]  # fmt: skip
    payloads, headers = [], []
    for message in written:
        context = SerializationContext("orders", MessageField.VALUE, headers=[])
        payloads.append(ProtobufSerializer(type(message), client, config)(message, context))
        headers.append([{"key": key, "value": each} for key, each in context.headers])
    assert all(len(each) == in_headers for each in headers)
    order = framed(registry, compiled(ORDER_2, tmp_path), "Order")
    values, reasons = rows(order, payloads, headers)
    assert values == [
        {"id": 1, "note": None, "lines": [{"sku": "a"}]}, {"id": 2**40, "note": "new", "lines": []}, None, None
    ]  # fmt: skip
    assert reasons[:2] == [None, None]
    assert ": message shop.Customer cannot be read as shop.Order" in str(reasons[2])
    line = framed(registry, compiled(ORDER_2, tmp_path), "shop.Order.Line")
    assert rows(line, payloads, headers)[0][3] == {"sku": "b"}


def test_a_schema_is_asked_for_once_unless_the_plan_brings_it(registry: FakeRegistry, tmp_path: Path) -> None:
    content = compiled(ORDER_2, tmp_path)
    file = descriptor_pb2.FileDescriptorSet.FromString(content).file[0]
    number = registry.register_protobuf("orders-value", file.SerializeToString())
    guid = UUID(int=7)
    brought = frame_of(guid) + b"\0" + tagged(1, 6)
    for _ in range(2):  # two tasks
        decoder = framed(registry, content, "Order", {guid: {(0,): "shop.Order"}})
        payloads = [
            frame_of(number) + b"\0" + tagged(1, 5),
            brought,
            None,
            frame_of(number) + b"\x02\x00" + tagged(1, 4),
        ]
        assert [row and row["id"] for row in rows(decoder, payloads)[0]] == [5, 6, None, 4]
    assert registry.requests == [f"/schemas/ids/{number}?format=serialized"]


def test_malformed_rows_say_why(registry: FakeRegistry, tmp_path: Path) -> None:
    avro = registry.register("other", {"type": "record", "name": "Order", "fields": []})
    text = registry.add("text", {"schema": ORDER_2, "schemaType": "PROTOBUF"})["id"]
    decoder = framed(registry, compiled(ORDER_2, tmp_path), "Order", {50: {(0,): "other.Order"}})
    good = frame_of(50) + b"\0" + tagged(1, 5)
    junk = [b"", b"junk", frame_of(77), frame_of(avro), frame_of(text), frame_of(50), frame_of(50) + b"\x02\x06",
            frame_of(50) + b"\x01", frame_of(50) + b"\x80" * 20, frame_of(50) + b"\0\x08"]  # fmt: skip
    values, reasons = rows(decoder, [good, *junk, None, good])
    assert [row and row["id"] for row in values] == [5, *[None] * 11, 5]
    for reason, said in zip(
        reasons,
        [
            "None", *[kernels.FAULTS[kernels.NO_FRAME]] * 2, "has no schema 77",
            f"schema {avro}: the schema is AVRO, not PROTOBUF", f"schema {text}: the registry gives the text of",
            kernels.FAULTS[kernels.BAD_INDEXES], "schema 50 has no message with the indexes [3]",
            *[kernels.FAULTS[kernels.BAD_INDEXES]] * 2, kernels.FAULTS[kernels.CUT_OFF], "None", "None",
        ],
        strict=True,
    ):  # fmt: skip
        assert said in str(reason)


def test_a_registry_that_is_down_fails_and_names_the_schema(registry: FakeRegistry, tmp_path: Path) -> None:
    registry.failures = [500] * 3
    with pytest.raises(RegistryError, match=r"the records of schema 9 cannot be read: .* HTTP status 500"):
        rows(framed(registry, compiled(ORDER_2, tmp_path), "Order"), [frame_of(9) + b"\0"])


def test_bodies_without_a_frame(tmp_path: Path) -> None:
    message = from_descriptor_set(compiled(ORDER_2, tmp_path)).message("shop.Order.Line")
    decoder = ProtobufFormat(message=message, options=ProtobufReadOptions()).decoder("value")
    column = pa.array([b"junk", tagged(1, b"a"), None, b"\x0a"], pa.binary()).slice(1)
    (piece,) = decoder.decode(column, None)
    assert piece.values.to_pylist() == [{"sku": "a"}, None, None]
    assert piece.faults.tolist() == [0, 0, kernels.CUT_OFF]


IDS = st.integers(0, 3) | st.sampled_from([2**32 - 1, UUID(int=2**127 + 5)])
INDEXES = st.lists(st.integers(0, 3) | st.integers(0, 9000), min_size=1, max_size=4).map(tuple)


def indexed(indexes: tuple[int, ...]) -> bytes:
    """As Confluent's serializers write indexes."""
    if indexes == (0,):
        return b"\0"
    return b"".join(varint(2 * each) for each in (len(indexes), *indexes))


@given(st.lists(st.none() | st.tuples(IDS, INDEXES, st.binary(max_size=6), st.booleans())), st.integers(0, 3))
def test_ids_and_indexes_are_before_bodies_or_in_headers(table: list[Any], skipped: int) -> None:
    payloads, headers, expected = [], [], []
    for row in table:
        if row is None:
            payloads.append(None)
            headers.append([])
            expected.append(None)
            continue
        number, indexes, body, in_header = row
        frame = frame_of(number) + indexed(indexes)
        payloads.append(body if in_header else frame + body)
        headers.append([{"key": HEADERS["value"], "value": frame}] if in_header else [])
        expected.append((number, indexes, body))
    column, lists = pa.array(payloads, pa.binary()), pa.array(headers, HEADERS_TYPE)
    assert seen(column.slice(skipped), lists.slice(skipped)) == expected[skipped:]


def seen(column: pa.Array, headers: pa.Array) -> list[tuple[SchemaId, Any, bytes] | None]:
    framed_column, messages = unframe_messages(column, headers, HEADERS["value"])
    found: list[tuple[SchemaId, Any, bytes] | None] = []
    for row, which in enumerate(messages.which.tolist()):
        if which < 0:
            found.append(None)
            continue
        number, indexes = messages.pairs[which]
        body = framed_column.data[framed_column.starts[row] : framed_column.ends[row]].tobytes()
        found.append((framed_column.ids[number], indexes, body))
    return found
