"""How keys and values are encoded, as the plan of a write brings it to tasks, and what encodes them.

    AvroWriting     bodies of one schema, with the schema's id in a registry before them or without
    JsonWriting     JSON objects

Texts need no encoder: Arrow has them in UTF-8 already.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from sparklog.schemas.avro_encoding import avro_encoder
from sparklog.schemas.encoding import Encoder
from sparklog.schemas.formats import parsed
from sparklog.schemas.framing import frame_of
from sparklog.schemas.json_encoding import json_encoder
from sparklog.schemas.registry import SchemaText


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroWriting:
    """Avro bodies."""

    type: pa.DataType
    schema: SchemaText
    schema_id: int | None
    """The number before each body; None: the body stands alone."""

    def encoder(self) -> Encoder:
        """Return what encodes a column. Raises SchemaError if the column does not fit the schema."""
        frame = b"" if self.schema_id is None else frame_of(self.schema_id)
        return avro_encoder(self.type, parsed(self.schema), frame=frame, bare_bytes=self.schema_id is not None)


@dataclass(frozen=True, slots=True)
class JsonWriting:
    """JSON objects."""

    type: pa.DataType

    def encoder(self) -> Encoder:
        """As AvroWriting's; raises SchemaError for types that JSON does not have."""
        return json_encoder(self.type)


Writing = AvroWriting | JsonWriting
