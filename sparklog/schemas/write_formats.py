"""Formats of keys and values in a write, and their encoders. The plan brings the formats to tasks.

    AvroWriteFormat        bodies of one schema
    ProtobufWriteFormat    one message
    JsonWriteFormat        JSON objects

Each may name a schema in a registry: before each body, or in a header. Texts need no encoder: Arrow stores them in
UTF-8 already.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from sparklog.schemas.avro_encoding import avro_encoder
from sparklog.schemas.encoding import Encoder
from sparklog.schemas.formats import parsed
from sparklog.schemas.framing import SchemaId, frame_of
from sparklog.schemas.json_encoding import json_encoder
from sparklog.schemas.protobuf import ProtobufMessage
from sparklog.schemas.protobuf_encoding import protobuf_encoder
from sparklog.schemas.registry import SchemaText


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaNaming:
    """How records name their schema."""

    schema_id: SchemaId
    in_header: bool = False
    indexes: bytes = b""
    """The bytes after the id: with Protobuf, the indexes of the message."""

    @property
    def frame(self) -> bytes:
        """The bytes that name the schema."""
        return frame_of(self.schema_id) + self.indexes


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroWriteFormat:
    """Avro bodies."""

    type: pa.DataType
    schema: SchemaText
    naming: SchemaNaming | None
    """None: the bodies name no schema."""

    def encoder(self) -> Encoder:
        """Return the encoder of a column. Raises SchemaError if the column does not fit the schema."""
        frame = frame_before(self.naming)
        return avro_encoder(self.type, parsed(self.schema), frame=frame, bare_bytes=self.naming is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtobufWriteFormat:
    """Protobuf messages."""

    type: pa.DataType
    message: ProtobufMessage = field(repr=False)
    naming: SchemaNaming | None = None

    def encoder(self) -> Encoder:
        """As AvroWriteFormat's."""
        return protobuf_encoder(self.type, self.message, frame=frame_before(self.naming))


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonWriteFormat:
    """JSON objects."""

    type: pa.DataType
    naming: SchemaNaming | None = None

    def encoder(self) -> Encoder:
        """As AvroWriteFormat's; raises SchemaError for types that JSON does not have."""
        return json_encoder(self.type, frame=frame_before(self.naming))


WriteFormat = AvroWriteFormat | ProtobufWriteFormat | JsonWriteFormat


def frame_before(naming: SchemaNaming | None) -> bytes:
    """Return the bytes before each body."""
    return b"" if naming is None or naming.in_header else naming.frame


def frame_in_header(naming: SchemaNaming | None) -> bytes | None:
    """Return the value of the header that names the schema; None: there is no such header."""
    return naming.frame if naming is not None and naming.in_header else None
