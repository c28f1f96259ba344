"""Avro, Protobuf and JSON to Arrow columns and back, on one core:  python -m bench.schemas [--help]

Avro beside fastavro and Protobuf beside Google's library, in bodies without a frame, and JSON beside Python's own
parser and writer, each in one column. A line that begins with > is the way back, from a column to bodies. Records:

    flat       long, string, an int or null, double, string: about 32 bytes
    evolved    the same, read with a schema that lacks one field, adds two and promotes one
    nested     a record in a record, an array of four records, a map of two numbers: about 110 bytes
    numbers    ten longs and ten doubles
    pb flat, pb nested      as flat and nested, in Protobuf
    json       as flat, in JSON

A figure is the best of several runs, in the thread's CPU time, which is the time it would take alone on the machine.
fastavro and Python's parser make a dictionary of each record, and Google's library a message; `to Arrow` then makes
columns of them, as our decoders do at once. On the way back they take dictionaries; `from Arrow` makes these of the
column first.
"""

from __future__ import annotations

import argparse
import io
import json
import random
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2, json_format, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from bench.decode import best_seconds
from sparklog.schemas.avro import parse_avro
from sparklog.schemas.avro_decoding import AvroDecoder
from sparklog.schemas.avro_encoding import avro_encoder
from sparklog.schemas.encoding import Encoder
from sparklog.schemas.formats import JsonFormat
from sparklog.schemas.json_encoding import json_encoder
from sparklog.schemas.protobuf import ProtobufReadOptions
from sparklog.schemas.protobuf_descriptors import from_descriptor_set
from sparklog.schemas.protobuf_encoding import protobuf_encoder
from sparklog.schemas.protobuf_formats import ProtobufFormat

PEER_RECORDS = 20_000
"""fastavro reads fewer: it would take a minute otherwise."""

CARRIERS = ("UA", "AA", "B6", "DL", "EV", "MQ", "US", "WN")


def record(name: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": of} for each, of in fields.items()]}


FLAT = record("Flight", id="long", carrier="string", delay=["null", "int"], price="double", origin="string")
EVOLVED = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "origin", "type": "string"},
        {"name": "id", "type": "double"},
        {"name": "cancelled", "type": "boolean", "default": False},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "delay", "type": ["null", "int"]},
        {"name": "price", "type": "double"},
    ],
}
NESTED = record(
    "Order",
    id="long",
    customer=record("Customer", name="string", since={"type": "long", "logicalType": "timestamp-millis"}),
    items={"type": "array", "items": record("Item", sku="string", count="int", price="double")},
    labels={"type": "map", "values": "long"},
)
NUMBERS = record("Row", **{f"l{i}": "long" for i in range(10)}, **{f"d{i}": "double" for i in range(10)})


def flat(rng: random.Random, i: int) -> dict[str, Any]:
    delay = rng.choice([None, rng.randrange(-20, 300)])
    return {"id": i, "carrier": rng.choice(CARRIERS), "delay": delay, "price": i / 7, "origin": "New York JFK"}


def nested(rng: random.Random, i: int) -> dict[str, Any]:
    items = [{"sku": f"sku-{rng.randrange(1000)}", "count": rng.randrange(9), "price": i / 7} for _ in range(4)]
    customer = {"name": f"customer {i}", "since": 1_700_000_000_000 + i}
    return {"id": i, "customer": customer, "items": items, "labels": {"weight": i, "height": 2}}


def numbers(rng: random.Random, _i: int) -> dict[str, Any]:
    return {f"l{i}": rng.randrange(2**40) for i in range(10)} | {f"d{i}": rng.random() for i in range(10)}


def encode(schema: dict[str, Any], rows: list[dict[str, Any]]) -> list[bytes]:
    parsed = fastavro.parse_schema(schema)
    bodies = []
    for row in rows:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, row)
        bodies.append(stream.getvalue())
    return bodies


def measure(name: str, writer: Any, reader: Any, make: Any, count: int, repeats: int) -> None:
    rng = random.Random(1)
    bodies = encode(writer, [make(rng, i) for i in range(count)])
    ends = np.cumsum([len(each) for each in bodies], dtype=np.int64)
    starts, data = np.concatenate([[0], ends[:-1]]), np.frombuffer(b"".join(bodies), np.uint8)
    decoder = AvroDecoder(parse_avro(json.dumps(reader)))
    entries = np.full(count, decoder.add_writer(parse_avro(json.dumps(writer))))

    def decode() -> None:
        faults = no_faults(count)
        for _ in decoder.decode(data, starts, ends, entries, faults):
            pass
        assert not faults.any()

    decode()  # compiles
    ours = best_seconds(decode, repeats)
    few = bodies[:PEER_RECORDS]
    parsed = fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    arrow = decoder.type

    def peer() -> list[Any]:
        return [fastavro.schemaless_reader(io.BytesIO(body), *parsed) for body in few]

    theirs = best_seconds(peer, repeats)
    columns = best_seconds(lambda: pa.array(peer(), arrow), repeats)
    report(name, len(data), count, ours, "fastavro", len(few) / theirs / 1e6, len(few) / columns / 1e6)
    if reader == writer:
        column = pa.concat_arrays([array for array, _ in decoder.decode(data, starts, ends, entries, no_faults(count))])
        encoder = avro_encoder(column.type, parse_avro(json.dumps(writer)))
        measure_back(name, column, encoder, "fastavro", lambda rows: encode(writer, rows), repeats)


def no_faults(count: int) -> Any:
    return np.zeros(count, np.uint8)


def measure_back(name: str, column: Any, encoder: Encoder, peer: str, write: Any, repeats: int) -> None:
    bodies = encoder.encode(column)  # compiles
    ours = best_seconds(lambda: encoder.encode(column), repeats)
    few = column.slice(0, PEER_RECORDS)
    rows = few.to_pylist(maps_as_pydicts="strict")
    theirs = best_seconds(lambda: write(rows), repeats)
    columns = best_seconds(lambda: write(few.to_pylist(maps_as_pydicts="strict")), repeats)
    size = sum(chunk.buffers()[2].size for chunk in bodies.chunks)
    report(f"> {name}", size, len(column), ours, peer, len(few) / theirs / 1e6, len(few) / columns / 1e6)


def protobuf_file() -> Any:
    """The messages Flight and Order, as in Avro."""
    file = descriptor_pb2.FileDescriptorProto(name="bench.proto", syntax="proto3")
    of, many = FieldDescriptorProto, FieldDescriptorProto.LABEL_REPEATED

    def add(message: Any, name: str, kind: int, label: int = of.LABEL_OPTIONAL, type_name: str = "") -> None:
        number = len(message.field) + 1
        message.field.add(
            name=name, number=number, type=kind, label=label, **({"type_name": type_name} if type_name else {})
        )

    made = file.message_type.add(name="Flight")
    for name, kind in (("id", of.TYPE_INT64), ("carrier", of.TYPE_STRING), ("delay", of.TYPE_SINT32),
                       ("price", of.TYPE_DOUBLE), ("origin", of.TYPE_STRING)):  # fmt: skip
        add(made, name, kind)
    order = file.message_type.add(name="Order")
    customer, item, entry = (order.nested_type.add(name=name) for name in ("Customer", "Item", "LabelsEntry"))
    add(customer, "name", of.TYPE_STRING)
    add(customer, "since", of.TYPE_INT64)
    add(item, "sku", of.TYPE_STRING)
    add(item, "count", of.TYPE_INT32)
    add(item, "price", of.TYPE_DOUBLE)
    add(entry, "key", of.TYPE_STRING)
    add(entry, "value", of.TYPE_INT64)
    entry.options.map_entry = True
    add(order, "id", of.TYPE_INT64)
    add(order, "customer", of.TYPE_MESSAGE, type_name=".Order.Customer")
    add(order, "items", of.TYPE_MESSAGE, many, ".Order.Item")
    add(order, "labels", of.TYPE_MESSAGE, many, ".Order.LabelsEntry")
    return file


def measure_protobuf(name: str, message: str, make: Any, count: int, repeats: int) -> None:
    file = protobuf_file()
    of = message_factory.GetMessages([file])[message]
    rng = random.Random(1)
    bodies = [of(**make(rng, i)).SerializeToString() for i in range(count)]
    column = pa.array(bodies, pa.binary())
    given = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    made = from_descriptor_set(given).message(message)
    decoder = ProtobufFormat(message=made, options=ProtobufReadOptions()).decoder("value")

    def decode() -> None:
        assert not any(piece.faults.any() for piece in decoder.decode(column, None))

    decode()  # compiles
    ours = best_seconds(decode, repeats)
    few = bodies[:PEER_RECORDS]

    def columns() -> Any:
        rows = [json_format.MessageToDict(of.FromString(each), preserving_proto_field_name=True) for each in few]
        for row in rows:  # JSON has 64 bits as texts
            row["id"] = int(row.get("id", 0))
            if "labels" in row:
                row["labels"] = {key: int(value) for key, value in row["labels"].items()}
                row["customer"]["since"] = int(row["customer"]["since"])
        return pa.array(rows, decoder.type)

    theirs = best_seconds(lambda: [of.FromString(each) for each in few], repeats)
    both = best_seconds(columns, repeats)
    report(name, sum(map(len, bodies)), count, ours, "protobuf", len(few) / theirs / 1e6, len(few) / both / 1e6)
    read = pa.concat_arrays([piece.values for piece in decoder.decode(column, None)])

    def write(rows: list[Any]) -> list[bytes]:
        return [of(**row).SerializeToString() for row in rows]

    measure_back(name, read, protobuf_encoder(read.type, made), "protobuf", write, repeats)


def measure_json(count: int, repeats: int) -> None:
    rng = random.Random(1)
    texts = [json.dumps(flat(rng, i)).encode() for i in range(count)]
    column = pa.array(texts, pa.binary())
    fields = {
        "id": pa.int64(),
        "carrier": pa.string(),
        "delay": pa.int32(),
        "price": pa.float64(),
        "origin": pa.string(),
    }
    arrow = pa.struct(list(fields.items()))
    decoder = JsonFormat(arrow).decoder("value")

    def decode() -> None:
        assert not any(piece.faults.any() for piece in decoder.decode(column, None))

    decode()  # compiles
    ours = best_seconds(decode, repeats)
    few = texts[:PEER_RECORDS]
    theirs = best_seconds(lambda: [json.loads(each) for each in few], repeats)
    columns = best_seconds(lambda: pa.array([json.loads(each) for each in few], arrow), repeats)
    report("json", sum(map(len, texts)), count, ours, "json", len(few) / theirs / 1e6, len(few) / columns / 1e6)
    read = pa.concat_arrays([piece.values for piece in decoder.decode(column, None)])
    measure_back("json", read, json_encoder(arrow), "json", lambda rows: [json.dumps(row) for row in rows], repeats)


def report(name: str, size: int, count: int, seconds: float, peer: str, peer_rate: float, peer_columns: float) -> None:
    rate = count / seconds / 1e6
    way = "from" if name.startswith(">") else "to"
    print(
        f"{name:<9} {size / count:>5.0f} B {rate:>7.2f} M records/s {size / seconds / 1e6:>7,.0f} MB/s"
        f"   {peer:<8} {peer_rate:>5.2f} M, {way} Arrow {peer_columns:>5.2f} M   {rate / peer_rate:>5.1f} x",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    for name, writer, reader, make in (
        ("flat", FLAT, FLAT, flat),
        ("evolved", FLAT, EVOLVED, flat),
        ("nested", NESTED, NESTED, nested),
        ("numbers", NUMBERS, NUMBERS, numbers),
    ):
        measure(name, writer, reader, make, arguments.records, arguments.repeats)
    measure_protobuf("pb flat", "Flight", flat, arguments.records, arguments.repeats)
    measure_protobuf("pb nested", "Order", nested, arguments.records, arguments.repeats)
    measure_json(arguments.records, arguments.repeats)


if __name__ == "__main__":
    main()
