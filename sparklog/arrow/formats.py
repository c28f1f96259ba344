"""Encodings of keys and values, for the arguments `key` and `value` of `record_batches`: its columns are then typed.

string_format()        UTF-8, as strings
json_format(fields)    JSON objects, as structs of these fields
avro_format(schema)    Avro bodies of one schema, without a frame
protobuf_format(set)   Protobuf bodies of one message, without a frame
registry_format(url)   Avro bodies with the ids of their schemas in a registry with Confluent's REST API
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from sparklog.schemas.columns import nullable_within
from sparklog.schemas.formats import AvroFormat, FramedAvroFormat, JsonFormat, StringFormat
from sparklog.schemas.json_decoding import check_readable
from sparklog.schemas.protobuf import ProtobufReadOptions
from sparklog.schemas.protobuf_descriptors import from_text
from sparklog.schemas.protobuf_formats import ProtobufFormat
from sparklog.schemas.registry import MOST_VERSIONS, Registry, SchemaText
from sparklog.schemas.registry_options import RegistryOptions

AVRO = "AVRO"


def string_format() -> StringFormat:
    """Return the format of UTF-8 texts."""
    return StringFormat()


def json_format(fields: pa.Schema | Iterable[pa.Field]) -> JsonFormat:
    """Return the format of JSON objects; a missing field is null, and other fields are ignored.

    Raises SchemaError for a type that JSON does not have.
    """
    of = nullable_within(pa.struct(list(fields)))
    check_readable(of)
    return JsonFormat(of)


def avro_format(schema: str, *, reader_schema: str | None = None) -> AvroFormat:
    """Return the format of Avro bodies without a frame.

    `schema`: the writers' schema, as JSON. `reader_schema`: the schema of the result; None: that of the writers.
    """
    return AvroFormat(writer=SchemaText(AVRO, schema), reader=SchemaText(AVRO, reader_schema or schema))


def protobuf_format(
    descriptor_set: str,
    message_name: str | None = None,
    *,
    emit_default_values: bool = False,
    enums_as_ints: bool = False,
    upcast_unsigned_ints: bool = False,
    unwrap_primitive_wrapper_types: bool = False,
) -> ProtobufFormat:
    """Return the format of Protobuf bodies without a frame.

    `descriptor_set` is the path of a file that ``protoc --include_imports --descriptor_set_out`` wrote, or its base64.
    `message_name` is the full name of a message; None: the only one. The other options are those of Spark's
    `from_protobuf`, with underscores.

    Raises SchemaError if there is no such message, or it has no type in Arrow, as one that contains itself.
    """
    options = ProtobufReadOptions(
        emit_default_values=emit_default_values,
        enums_as_ints=enums_as_ints,
        upcast_unsigned_ints=upcast_unsigned_ints,
        unwrap_primitive_wrapper_types=unwrap_primitive_wrapper_types,
    )
    return ProtobufFormat(message=from_text(descriptor_set).message(message_name), options=options)


def registry_format(
    url: str | Iterable[str],
    subject: str,
    *,
    reader_schema: str | None = None,
    user_info: str | None = None,
    token: str | None = None,
    truststore: str | None = None,
    keystore: str | None = None,
) -> FramedAvroFormat:
    """Return the format of Avro bodies with the id of their schema, before the body or in a header.

    `url`: one or several URLs of the registry. `subject`: a name such as ``orders-value``, whose latest version is the
    schema of the result, unless there is a `reader_schema`. `user_info`: USER:PASSWORD. `token`: a bearer token.
    `truststore`, `keystore`: PEM files.

    Fetches the subject's schemas from the registry. Raises RegistryError and UnknownSchema.
    """
    urls = (url,) if isinstance(url, str) else tuple(url)
    options = RegistryOptions(urls=urls, user_info=user_info, token=token, truststore=truststore, keystore=keystore)
    versions = Registry(options).versions(subject, MOST_VERSIONS)
    return FramedAvroFormat(
        reader=versions[-1].schema if reader_schema is None else SchemaText(AVRO, reader_schema),
        writers={each: version.schema for version in versions for each in version.ids},
        registry=options,
    )
