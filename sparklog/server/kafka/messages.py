"""Kafka's messages: conversion of plain values to the typed values of `kio`.

`kio` has a class for each structure of each version of a message. A translation passes all its fields, once for all
versions. `make` drops the fields that a version does not have, and converts

    structures      from dicts
    error_code      from a KafkaError, a code, or None for no error
    times           from whole milliseconds (kio names them without the `_ms` of Kafka's schema: `throttle_time`)

A field that is not passed gets the schema's default. Without a default, an error code and a time are 0; any other
missing field raises TypeError. So does a field that no version has.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader

from sparklog.base.errors import InvalidRequest, KafkaError
from sparklog.server.kafka.array_counts import MAX_ELEMENTS, TooManyElements, check_array_counts
from sparklog.server.kafka.message_writer import without_none, writer_of

Message = Any
"""A structure of kio."""
MessageClass = Any
"""The class of a structure, in one version of its message."""
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
LARGE_BYTES = 64 << 10
ELEMENT_BYTES = 64
"""Assumed size of an array element, beside its text and bytes: writing it takes several microseconds."""
KNOWN_PLANS = 4096
"""Cache size: several times the number of structures in all versions. A structure mostly has the same fields."""
NO_TIME = datetime.timedelta()
_MILLISECOND = datetime.timedelta(milliseconds=1)


def versions_of(key: int) -> tuple[int, int]:
    """Return the first and the last version of an API in kio. Raises KeyError for an unknown API."""
    known = schema_name_map[api_key_map[key]]
    return min(known), max(known)


def read_request(key: int, version: int, data: bytes | memoryview, most: int = MAX_ELEMENTS) -> Message:
    """Decode a request and return it.

    Raises InvalidRequest if `data` does not begin with a complete request of this version, or if its arrays have more
    than `most` elements in all. Bytes after the request are ignored, as in Apache Kafka: librdkafka sends a few extra
    bytes in Metadata and AlterUserScramCredentials.
    """
    cls = _request_type(key, version)
    data = memoryview(data).toreadonly()
    check_array_counts(cls, data, most)
    try:
        request, _ = _reader(cls)(data, 0)
    except Exception as error:  # kio's reader raises any exception of its parts
        raise InvalidRequest(f"not a request of API {key} version {version}: {error}") from error
    if _check_arrays(request, _arrays(cls)) > most:
        raise TooManyElements(most)
    return request


@cache
def _request_type(key: int, version: int) -> MessageClass:
    return load_request_schema(key, version)


@cache
def response_type(key: int, version: int) -> MessageClass:
    """Return kio's class of the responses of an API in this version."""
    return load_response_schema(key, version)


def write(message: Message) -> bytes:
    """Return the bytes of a message without a header."""
    return writer_of(message.__class__)(message)


def is_large(message: Message) -> bool:
    """Return whether writing the message takes several milliseconds or more."""
    return _room_left(message, LARGE_BYTES) < 0


def has_error(message: Message) -> bool:
    """Return whether an error code in the message is not 0."""
    codes, parts = _errors(message.__class__)
    for name in codes:
        if getattr(message, name) is not ErrorCode.none:
            return True
    for name in parts:
        part = getattr(message, name)
        if any(map(has_error, part)) if isinstance(part, tuple) else part is not None and has_error(part):
            return True
    return False


def whole_ms(time: datetime.timedelta) -> int:
    """Return a time of a request in whole milliseconds."""
    return time // _MILLISECOND


def with_throttle_time(message: Message, wait_ms: int) -> Message:
    """Return the response with this throttle time; unchanged if its version has no such field."""
    if "throttle_time" not in _fields(message.__class__):
        return message
    return dataclasses.replace(message, throttle_time=_milliseconds(wait_ms))


def make(cls: MessageClass, /, **values: Any) -> Message:
    """Return a structure of the class. Raises TypeError as described at the head of this file."""
    known, defaults = _plan(cls, tuple(values))
    made = defaults.copy()
    for name, convert in known:
        value = values[name]
        made[name] = value if convert is None else convert(value)
    return cls(**made)


class _FieldConversion(NamedTuple):
    """Conversion of a field; None: its values stay as they are.

    `default` is set for optional fields without a default in the schema.
    """

    convert: Callable[[Any], Any] | None
    default: Any


@lru_cache(KNOWN_PLANS)
def _plan(
    cls: MessageClass, names: tuple[str, ...]
) -> tuple[list[tuple[str, Callable[[Any], Any] | None]], dict[str, Any]]:
    """Return the plan for a structure from these fields: the conversions of its fields, and the other defaults."""
    fields = _fields(cls)
    if unknown := set(names) - fields.keys():
        _check_known(cls, unknown)
    defaults = {name: field.default for name, field in fields.items() if field.default is not None}
    return [(name, fields[name].convert) for name in names if name in fields], defaults


class _ArrayField(NamedTuple):
    """An array field of a structure, and the array fields of its elements."""

    name: str
    may_be_null: bool
    inner: tuple[_ArrayField, ...]


def _check_arrays(message: Message, arrays: tuple[_ArrayField, ...]) -> int:
    """Return the total number of elements.

    Raises InvalidRequest for a null in an array that is not nullable, which kio's reader does not check.
    """
    count = 0
    for name, may_be_null, inner in arrays:
        elements = getattr(message, name)
        if elements is None:
            if not may_be_null:
                raise InvalidRequest(f"{name} cannot be null")
        else:
            count += len(elements)
            if inner:
                for element in elements:
                    count += _check_arrays(element, inner)
    return count


def _room_left(message: Message, room: int) -> int:
    """Return `room` less the size of the message; any negative number for a larger message."""
    texts, arrays = _variable_fields(message.__class__)
    for name in texts:
        room -= len(getattr(message, name) or ())
    for name, has_structures, has_texts in arrays:
        elements = getattr(message, name) or ()
        room -= ELEMENT_BYTES * len(elements)
        if room < 0:
            break
        if has_structures:
            for element in elements:
                room = _room_left(element, room)
                if room < 0:
                    break
        elif has_texts:
            room -= sum(map(len, elements))
    return room


@cache
def _variable_fields(cls: MessageClass) -> tuple[list[str], list[tuple[str, bool, bool]]]:
    """Return the fields with text or bytes; and the arrays, each with whether it has structures, or text or bytes."""
    texts, arrays = [], []
    for name, annotation in get_type_hints(cls).items():
        kind = without_none(annotation)
        if get_origin(kind) is tuple:
            element: MessageClass = get_args(kind)[0]
            arrays.append((name, dataclasses.is_dataclass(element), _is_text(element)))
        elif _is_text(kind):
            texts.append(name)
    return texts, arrays


def _is_text(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, str | bytes)


@cache
def _errors(cls: MessageClass) -> tuple[list[str], list[str]]:
    """Return the fields with error codes, and the fields whose structures have some."""
    codes = [field.name for field in dataclasses.fields(cls) if field.metadata.get("kafka_type") == "error_code"]
    parts = []
    for name, annotation in get_type_hints(cls).items():
        kind = without_none(annotation)
        element: MessageClass = get_args(kind)[0] if get_origin(kind) is tuple else kind
        is_structure = dataclasses.is_dataclass(element)
        if is_structure and any(_errors(element)):
            parts.append(name)
    return codes, parts


@cache
def _arrays(cls: MessageClass) -> tuple[_ArrayField, ...]:
    found = []
    for name, annotation in get_type_hints(cls).items():
        kind = without_none(annotation)
        if get_origin(kind) is tuple:
            element: MessageClass = get_args(kind)[0]
            is_structure = dataclasses.is_dataclass(element)
            found.append(_ArrayField(name, kind is not annotation, _arrays(element) if is_structure else ()))
    return tuple(found)


@cache
def _reader(cls: MessageClass) -> Callable[[bytes | memoryview, int], tuple[Message, int]]:
    return entity_reader(cls)


@cache
def _fields(cls: MessageClass) -> dict[str, _FieldConversion]:
    types = get_type_hints(cls)
    return {field.name: _field(field, types[field.name]) for field in dataclasses.fields(cls)}


def _field(field: dataclasses.Field[Any], annotation: Any) -> _FieldConversion:
    kind = field.metadata.get("kafka_type", "")
    if kind == "error_code":
        return _FieldConversion(_error_code, ErrorCode.none)
    if kind.startswith("timedelta"):
        return _FieldConversion(_milliseconds, NO_TIME)
    return _FieldConversion(_time if kind.startswith("datetime") else _converter(without_none(annotation)), None)


def _converter(annotation: Any) -> Callable[[Any], Any] | None:
    if get_origin(annotation) is tuple:
        element = get_args(annotation)[0]
        convert = _converter(element) if dataclasses.is_dataclass(element) else None
        if convert is None:
            return lambda values: None if values is None else tuple(values)
        return lambda values: None if values is None else tuple(map(convert, values))
    if dataclasses.is_dataclass(annotation):
        return lambda value: make(annotation, **value) if isinstance(value, Mapping) else value
    return None


def _error_code(value: KafkaError | int | None) -> ErrorCode:
    if not value:
        return ErrorCode.none
    return ErrorCode(value.code if isinstance(value, KafkaError) else value)


def _milliseconds(value: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=value) if value else NO_TIME


def _time(value: int | None) -> datetime.datetime | None:
    return None if value is None else _EPOCH + datetime.timedelta(milliseconds=value)


def _check_known(cls: MessageClass, names: set[str]) -> None:
    unknown = names - _names_in_any_version(cls)
    if unknown:
        raise TypeError(f"no version of {cls.__name__} has a field {', '.join(sorted(unknown))}")


@cache
def _names_in_any_version(cls: MessageClass) -> frozenset[str]:
    """Return the fields of the class of this name in all versions of the message."""
    schema, _, kind = cls.__module__.split(".")[2:]
    names: set[str] = set()
    for version in schema_name_map[schema]:
        load = load_response_schema if kind == "response" else load_request_schema
        top = load(cls.__api_key__, version)
        module = __import__(top.__module__, fromlist=[cls.__name__])
        if found := getattr(module, cls.__name__, None):
            names.update(field.name for field in dataclasses.fields(found))
    return frozenset(names)
