"""Formats of the keys or values of a topic, and their decoders. Plans bring the formats to tasks.

    AvroFormat              bodies of one writer's schema, without a frame
    FramedAvroFormat        bodies of Avro with the ids of their schemas in a registry
    ProtobufFormat          a Protobuf message (protobuf_formats.py)
    FramedProtobufFormat    Protobuf messages with the ids of their schemas (protobuf_formats.py)
    JsonFormat              JSON objects
    StringFormat            UTF-8

A decoder turns a binary column into arrays of its type. A null row stays null. A malformed row becomes null and gets a
fault, which the decoder explains in words.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.base.errors import SchemaError
from sparklog.schemas import column_kernels as kernels
from sparklog.schemas.avro import parse_avro
from sparklog.schemas.avro_decoding import NULL_ENTRY, AvroDecoder
from sparklog.schemas.columns import lay_out
from sparklog.schemas.framing import HEADERS, SchemaId, bodies, unframe
from sparklog.schemas.json_decoding import JsonDecoder
from sparklog.schemas.pieces import DecodedPiece, Decoder
from sparklog.schemas.protobuf_formats import FramedProtobufFormat, ProtobufFormat
from sparklog.schemas.registry import SchemaText
from sparklog.schemas.registry_options import RegistryOptions
from sparklog.schemas.schema_cache import SchemaCache


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroFormat:
    """Avro bodies without a frame, all of the writer's schema."""

    writer: SchemaText
    reader: SchemaText

    reads_headers = False

    def decoder(self, column: str) -> Decoder:
        """Return a decoder for the column, `key` or `value`. Raises SchemaError if the schemas do not fit."""
        return _AvroBodyDecoder(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class FramedAvroFormat:
    """Avro bodies with the ids of their schemas."""

    reader: SchemaText
    writers: Mapping[SchemaId, SchemaText] = field(repr=False)
    """Schemas that the plan knows; tasks ask the registry for others."""
    registry: RegistryOptions

    reads_headers = True

    def decoder(self, column: str) -> Decoder:
        """As AvroFormat's."""
        return _FramedAvroDecoder(self, HEADERS[column])


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """JSON objects."""

    type: pa.DataType
    """A struct whose fields are all nullable."""

    reads_headers = False

    def decoder(self, column: str) -> Decoder:
        """As AvroFormat's; raises SchemaError for types that JSON does not have."""
        return _JsonColumnDecoder(self.type)


@dataclass(frozen=True, slots=True)
class StringFormat:
    """UTF-8 texts."""

    reads_headers = False

    def decoder(self, column: str) -> Decoder:
        """As AvroFormat's."""
        return _StringDecoder()


Format = AvroFormat | FramedAvroFormat | ProtobufFormat | FramedProtobufFormat | JsonFormat | StringFormat


def type_of(reader: SchemaText) -> pa.DataType:
    """Return the Arrow type of a reader's schema. Raises SchemaError if it is not valid, or not Avro."""
    return lay_out(parsed(reader)).root.type


def parsed(schema: SchemaText) -> Any:
    """Return the Avro schema in a text. Raises SchemaError if it is not valid, or not Avro."""
    if schema.kind != "AVRO":
        raise SchemaError(f"the schema is {schema.kind}, not AVRO")
    return parse_avro(schema.text, schema.references)


class _AvroBodyDecoder:
    def __init__(self, of: AvroFormat) -> None:
        self._decoder = AvroDecoder(parsed(of.reader))
        self._entry = self._decoder.add_writer(parsed(of.writer))
        self.type = self._decoder.type

    def decode(self, column: pa.Array, headers: pa.Array | None) -> Iterator[DecodedPiece]:
        data, starts, ends = bodies(column)
        entries = np.full(len(column), self._entry, np.int64)
        if column.null_count:
            entries[np.asarray(column.is_null())] = NULL_ENTRY
        faults = np.zeros(len(column), np.uint8)
        for values, first in self._decoder.decode(data, starts, ends, entries, faults):
            yield DecodedPiece(first, values, faults[first : first + len(values)], {})


class _FramedAvroDecoder:
    def __init__(self, of: FramedAvroFormat, header: str) -> None:
        self._format = of
        self._header = header
        self._decoder = AvroDecoder(parsed(of.reader))
        self._ids = SchemaCache(of.registry, self._add_writer, of.writers)
        self.type = self._decoder.type

    def _add_writer(self, schema: SchemaText) -> int:
        # Confluent's serializers write the bytes of the schema `bytes` as they are.
        return self._decoder.add_writer(parsed(schema), bare_bytes=True)

    def decode(self, column: pa.Array, headers: pa.Array | None) -> Iterator[DecodedPiece]:
        framed = unframe(column, headers, self._header)
        entries_of, faults_of = self._ids.look_up(framed.ids)
        # NO_FRAME and NULL are -2 and -1: the places behind those of the ids.
        entries = np.array([*(each or NULL_ENTRY for each in entries_of), NULL_ENTRY, NULL_ENTRY], np.int64)
        faults = np.array([*faults_of, kernels.NO_FRAME, 0], np.uint8)[framed.which]
        named = np.flatnonzero(faults).tolist() if any(faults_of) else []
        reasons = {row: self._ids.reason(framed.ids[framed.which[row]]) for row in named if framed.which[row] >= 0}
        entries = entries[framed.which]
        for values, first in self._decoder.decode(framed.data, framed.starts, framed.ends, entries, faults):
            yield DecodedPiece(first, values, faults[first : first + len(values)], reasons)


class _JsonColumnDecoder:
    def __init__(self, of: pa.DataType) -> None:
        self._decoder = JsonDecoder(of)
        self.type = of

    def decode(self, column: pa.Array, headers: pa.Array | None) -> Iterator[DecodedPiece]:
        return itertools.starmap(DecodedPiece, self._decoder.decode(column))


class _StringDecoder:
    type = pa.string()

    def decode(self, column: pa.Array, headers: pa.Array | None) -> Iterator[DecodedPiece]:
        faults = np.zeros(len(column), np.uint8)
        try:
            values = column.cast(pa.string())
        except pa.ArrowInvalid:
            faults[:] = [0 if _is_text(each.as_buffer()) else kernels.NOT_UTF8 for each in column]
            good = pc.if_else(pa.array(faults == 0), column, pa.scalar(None, column.type))
            values = good.cast(pa.string())
        yield DecodedPiece(0, values, faults, {})


def _is_text(body: pa.Buffer | None) -> bool:
    try:
        str(body or b"", "utf-8")
    except UnicodeDecodeError:
        return False
    return True
