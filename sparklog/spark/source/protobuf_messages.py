"""Messages of Protobuf schemas, on the driver. Loads Google's library only if a read or write needs it."""

from __future__ import annotations

import importlib
from typing import Any

from sparklog.schemas.protobuf import ProtobufMessage
from sparklog.schemas.protobuf_formats import check_protobuf
from sparklog.schemas.registry import SchemaText


def descriptors() -> Any:
    """Return the module `protobuf_descriptors`."""
    return importlib.import_module("sparklog.schemas.protobuf_descriptors")


def message_of(schema: SchemaText, name: str | None) -> ProtobufMessage:
    """Return a message of a schema from a registry.

    name: None: the only one of the schema
    Raises SchemaError if there is none, or it has no type in Spark.
    """
    check_protobuf(schema)
    references = dict(zip(schema.reference_names, schema.references, strict=True))
    message: ProtobufMessage = descriptors().from_registry(schema.text, references).message(name)
    return message
