"""Compiles the program that writes an Arrow column of structs as JSON objects, which `json_decoding` can read.

The form is that of Spark's `to_json`. Null fields are left out; null items of lists are `null`. Decimals are numbers.
Dates and timestamps are texts of ISO 8601: a timestamp with a zone is in UTC and ends in Z; a timestamp without a zone
has none. Arrow makes the texts of numbers and dates; the loop adds quotes, names and commas.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from sparklog.base.errors import SchemaError
from sparklog.schemas import encode_kernels as kernels
from sparklog.schemas.encoding import ColumnSource, Encoder, EncodingProgram
from sparklog.schemas.json_decoding import without_json


def json_encoder(of: pa.DataType, *, frame: bytes = b"") -> Encoder:
    """Return the encoder of columns of a type. Raises SchemaError unless it is a struct whose parts all exist in JSON.

    frame: bytes before each object
    """
    if not pa.types.is_struct(of):
        raise SchemaError(f"a JSON object needs a struct of its fields, not {of}")
    if (found := without_json(of)) is not None:
        raise SchemaError(
            f"{found[0]}: {found[1]} cannot be written as JSON; cast this part to string, or use to_json and "
            "write the column as string"
        )
    encoding = EncodingProgram()
    if frame:
        encoding.literal(frame)
    _value(encoding, of, encoding.source(""))
    return Encoder(of, encoding)


def _value(encoding: EncodingProgram, of: pa.DataType, source: ColumnSource) -> None:
    """Compile a value that is not null."""
    if pa.types.is_struct(of):
        encoding.literal(b"{", kernels.OPEN)
        for number, each in enumerate(of):
            path = f"{source.path}.{each.name}" if source.path else each.name
            part = encoding.source(path, source, number)
            skip = encoding.skip_null(part)
            encoding.literal(json.dumps(each.name, ensure_ascii=False).encode() + b":", kernels.FIELD)
            _value(encoding, each.type, part)
            skip[kernels.C] = encoding.next
        encoding.literal(b"}", kernels.CLOSE)
    elif pa.types.is_list(of):
        encoding.literal(b"[", kernels.OPEN)
        encoding.each(source, lambda: _item(encoding, of.value_type, source), count=False)
        encoding.literal(b"]", kernels.CLOSE)
    else:
        _leaf(encoding, of, source)


def _item(encoding: EncodingProgram, of: pa.DataType, within: ColumnSource) -> None:
    part = encoding.source(f"{within.path}[]", within)
    encoding.literal(b"", kernels.FIELD)
    skip = encoding.skip_null(part, b"null")
    _value(encoding, of, part)
    skip[kernels.C] = encoding.next


def _leaf(encoding: EncodingProgram, of: pa.DataType, source: ColumnSource) -> None:
    if pa.types.is_string(of):
        encoding.emit(kernels.ESCAPED, source)
        return
    source.read_as(_as_text)
    if pa.types.is_date32(of) or pa.types.is_timestamp(of):
        encoding.literal(b'"')
        encoding.emit(kernels.MOMENT, source)
        encoding.literal(b'Z"' if pa.types.is_timestamp(of) and of.tz else b'"')
    elif pa.types.is_floating(of):
        encoding.emit(kernels.FINITE, source)
    else:
        encoding.emit(kernels.TEXT, source, 0, 1)


def _as_text(array: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(array.type) and array.type.tz:
        array = array.cast(pa.timestamp("us"))  # the same moment in UTC, whose text has no zone
    return array.cast(pa.string())


def derived_json_schema(of: pa.DataType) -> dict[str, Any]:
    """Return the JSON Schema of the objects that `json_encoder` writes. Raises as `json_encoder`."""
    json_encoder(of)
    return {"$schema": "http://json-schema.org/draft-07/schema#", **_derived(of)}


def _derived(of: pa.DataType) -> dict[str, Any]:
    if pa.types.is_struct(of):
        return {"type": "object", "properties": {each.name: _derived(each.type) for each in of}}
    if pa.types.is_list(of):
        items = _derived(of.value_type)
        return {"type": "array", "items": {"oneOf": [{"type": "null"}, items]} if of.value_field.nullable else items}
    if pa.types.is_boolean(of):
        return {"type": "boolean"}
    if pa.types.is_date32(of) or pa.types.is_timestamp(of):
        return {"type": "string", "format": "date" if pa.types.is_date32(of) else "date-time"}
    if pa.types.is_string(of):
        return {"type": "string"}
    return {"type": "integer" if pa.types.is_integer(of) else "number"}
