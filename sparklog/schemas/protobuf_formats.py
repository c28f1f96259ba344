"""Formats of keys and values that are Protobuf messages, and their decoders. Plans bring the formats to tasks.

ProtobufFormat          bodies of one message, without a frame
FramedProtobufFormat    bodies with the ids of their schemas in a registry, and the indexes of their messages
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from sparklog.base.errors import SchemaError
from sparklog.schemas import column_kernels as kernels
from sparklog.schemas.framing import HEADERS, Indexes, SchemaId, bodies, unframe_messages
from sparklog.schemas.pieces import DecodedPiece, Decoder
from sparklog.schemas.protobuf import ProtobufMessage, ProtobufReadOptions
from sparklog.schemas.protobuf_decoding import ProtobufDecoder
from sparklog.schemas.registry import SchemaText
from sparklog.schemas.registry_options import RegistryOptions
from sparklog.schemas.schema_cache import SchemaCache

Names = Mapping[Indexes, str]
"""The full names of a schema's messages, by their indexes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtobufFormat:
    """Protobuf bodies without a frame."""

    message: ProtobufMessage = field(repr=False)
    options: ProtobufReadOptions

    reads_headers = False

    def decoder(self, column: str) -> Decoder:
        """Return a decoder for the column, `key` or `value`. Raises SchemaError for a message that is too large."""
        return _ProtobufBodyDecoder(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class FramedProtobufFormat:
    """Protobuf bodies with the ids of their schemas."""

    message: ProtobufMessage = field(repr=False)
    options: ProtobufReadOptions
    writers: Mapping[SchemaId, Names] = field(repr=False)
    """Messages of the schemas that the plan knows; tasks ask the registry for others."""
    registry: RegistryOptions

    reads_headers = True

    def decoder(self, column: str) -> Decoder:
        """As ProtobufFormat's."""
        return _FramedProtobufDecoder(self, HEADERS[column])


class _ProtobufBodyDecoder:
    def __init__(self, of: ProtobufFormat) -> None:
        self._decoder = ProtobufDecoder(of.message, of.options)
        self.type = self._decoder.type

    def decode(self, column: pa.Array, headers: pa.Array | None) -> Iterator[DecodedPiece]:
        data, starts, ends = bodies(column)
        faults = np.zeros(len(column), np.uint8)
        for values, first in self._decoder.decode(data, starts, ends, np.asarray(column.is_null()), faults):
            yield DecodedPiece(first, values, faults[first : first + len(values)], {})


class _FramedProtobufDecoder:
    def __init__(self, of: FramedProtobufFormat, header: str) -> None:
        self._wanted = of.message.name
        self._header = header
        self._decoder = ProtobufDecoder(of.message, of.options)
        self._ids = SchemaCache(of.registry, _names, {}, known=of.writers, serialized=True)
        self.type = self._decoder.type

    def decode(self, column: pa.Array, headers: pa.Array | None) -> Iterator[DecodedPiece]:
        framed, messages = unframe_messages(column, headers, self._header)
        known, faults_of_ids = self._ids.look_up(framed.ids)
        found = [
            self._problem(framed.ids[which], known[which], faults_of_ids[which], indexes)
            for which, indexes in messages.pairs
        ]
        # NO_FRAME and NULL are -2 and -1: the places behind those of the messages.
        faults = np.array([*(fault for fault, _ in found), kernels.NO_FRAME, 0], np.uint8)[messages.which]
        named = np.flatnonzero(faults).tolist() if any(fault for fault, _ in found) else []
        reasons = {row: found[messages.which[row]][1] for row in named if messages.which[row] >= 0}
        is_null = np.asarray(column.is_null())
        for values, first in self._decoder.decode(framed.data, framed.starts, framed.ends, is_null, faults):
            yield DecodedPiece(first, values, faults[first : first + len(values)], reasons)

    def _problem(self, of: SchemaId, names: Names | None, fault: int, indexes: Indexes | None) -> tuple[int, str]:
        """Return the fault of bodies of a message, and the reason; 0: they can be read."""
        if names is None:
            return fault, self._ids.reason(of)
        if indexes is None:
            return kernels.BAD_INDEXES, kernels.FAULTS[kernels.BAD_INDEXES]
        if indexes not in names:
            return kernels.BAD_INDEXES, f"schema {of} has no message with the indexes {list(indexes)}"
        if names[indexes].rpartition(".")[2] != self._wanted.rpartition(".")[2]:
            return kernels.INCOMPATIBLE, f"schema {of}: message {names[indexes]} cannot be read as {self._wanted}"
        return 0, ""


def _names(schema: SchemaText) -> Names:
    """Return the messages of a schema. Loads Google's library, which most tasks do not need."""
    check_protobuf(schema)
    descriptors: Any = importlib.import_module("sparklog.schemas.protobuf_descriptors")
    names: Names = descriptors.message_names(schema.text)
    return names


def check_protobuf(schema: SchemaText) -> None:
    """Raise SchemaError unless a schema of a registry is Protobuf."""
    if schema.kind != "PROTOBUF":
        raise SchemaError(f"the schema is {schema.kind}, not PROTOBUF")
