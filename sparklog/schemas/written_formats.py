"""How keys and values are encoded, as the plan of a write brings it to tasks, and what encodes them.

    AvroWriting         bodies of one schema
    ProtobufWriting     one message
    JsonWriting         JSON objects

All may name a schema in a registry: before each body, or in a header. Texts need no encoder: Arrow has them in UTF-8
already.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from sparklog.schemas.avro_encoding import avro_encoder
from sparklog.schemas.encoding import Encoder
from sparklog.schemas.formats import parsed
from sparklog.schemas.framing import SchemaId, frame_of
from sparklog.schemas.json_encoding import json_encoder
from sparklog.schemas.protobuf import Message
from sparklog.schemas.protobuf_encoding import protobuf_encoder
from sparklog.schemas.registry import SchemaText


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """How records name their schema."""

    schema_id: SchemaId
    in_header: bool = False
    indexes: bytes = b""
    """What follows the id: with Protobuf the indexes of the message."""

    @property
    def frame(self) -> bytes:
        """The bytes that name the schema."""
        return frame_of(self.schema_id) + self.indexes


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroWriting:
    """Avro bodies."""

    type: pa.DataType
    schema: SchemaText
    naming: Naming | None
    """None: the body stands alone."""

    def encoder(self) -> Encoder:
        """Return what encodes a column. Raises SchemaError if the column does not fit the schema."""
        frame = frame_before(self.naming)
        return avro_encoder(self.type, parsed(self.schema), frame=frame, bare_bytes=self.naming is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtobufWriting:
    """Protobuf messages."""

    type: pa.DataType
    message: Message = field(repr=False)
    naming: Naming | None = None

    def encoder(self) -> Encoder:
        """As AvroWriting's."""
        return protobuf_encoder(self.type, self.message, frame=frame_before(self.naming))


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonWriting:
    """JSON objects."""

    type: pa.DataType
    naming: Naming | None = None

    def encoder(self) -> Encoder:
        """As AvroWriting's; raises SchemaError for types that JSON does not have."""
        return json_encoder(self.type, frame=frame_before(self.naming))


Writing = AvroWriting | ProtobufWriting | JsonWriting


def frame_before(naming: Naming | None) -> bytes:
    """Return the bytes before each body."""
    return b"" if naming is None or naming.in_header else naming.frame


def frame_in_header(naming: Naming | None) -> bytes | None:
    """Return the value of the header that names the schema; None: there is none."""
    return naming.frame if naming is not None and naming.in_header else None
