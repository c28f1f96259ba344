"""Messages of gRPC of any shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from support.brokers.grown_messages import element_of, small
from support.fuzzing.shapes import (
    EACH,
    LONGEST_ARRAY,
    LONGEST_TAGS,
    LONGEST_TEXT,
    SAME,
    TAGS,
    Growth,
    Path,
    Shape,
    large_number,
    long_bytes,
    long_text,
    name,
    number_of,
)

KINDS = 20
DEPTH = 4
TEXT = FieldDescriptor.CPPTYPE_STRING
NUMBERS = (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64)
UNKNOWN_FIELD = b"\xfa\x7f\0"
"""Empty bytes under the number 2047, which no message has."""


def build(shape: Shape, descriptor: Any) -> bytes:
    """The message's bytes."""
    random = Random(shape.seed)
    message = small(random, descriptor)
    unknown = b""
    for growth in shape.growths:
        if growth.path == (TAGS,):
            unknown = UNKNOWN_FIELD * growth.count
        else:
            _grow(random, message, growth.path, growth)
    data: bytes = message.SerializeToString()
    return data + unknown


def longest(descriptor: Any) -> Mapping[Path, int]:
    """How long what can grow may be: repeated fields, strings and bytes, those in messages within too."""
    return {(TAGS,): LONGEST_TAGS} | dict(_longest(descriptor, DEPTH))


def _longest(descriptor: Any, depth: int) -> Iterator[tuple[Path, int]]:
    for field in descriptor.fields if depth else ():
        if field.is_repeated:
            yield (field.name,), LONGEST_ARRAY
            if field.type == FieldDescriptor.TYPE_STRING:
                yield (field.name, EACH), LONGEST_TEXT
        elif field.cpp_type == TEXT:
            yield (field.name,), LONGEST_TEXT
        elif field.cpp_type in NUMBERS and (most := large_number(field.name)):
            yield (field.name,), most
        if field.message_type and not _is_map(field):
            yield from (((field.name, *path), most) for path, most in _longest(field.message_type, depth - 1))


def _is_map(field: Any) -> bool:
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def _grow(random: Random, message: Any, path: Path, growth: Growth) -> None:
    first, *inner = path
    field = message.DESCRIPTOR.fields_by_name[first]
    if inner:
        held = getattr(message, first)
        if inner == [EACH]:
            held[:] = [long_text(each, growth.count, growth.kind) for each in held or ("",)]
            return
        if not field.is_repeated:
            held.SetInParent()
            _grow(random, held, tuple(inner), growth)
            return
        if not held:
            held.append(small(random, field.message_type))
        for each in held:
            _grow(random, each, tuple(inner), growth)
    elif _is_map(field):
        held = getattr(message, first)
        for number in range(growth.count):
            held[name(number, growth.kind)] = "1"
    elif not field.is_repeated and field.cpp_type in NUMBERS:
        setattr(message, first, -growth.count if growth.kind == SAME else growth.count)
    elif not field.is_repeated:
        is_bytes = field.type == FieldDescriptor.TYPE_BYTES
        grown = (
            long_bytes(growth.count, growth.kind)
            if is_bytes
            else long_text(getattr(message, first), growth.count, growth.kind)
        )
        setattr(message, first, grown)
    else:
        message.ClearField(first)
        some = [element_of(random, field) for _ in range(min(KINDS, growth.count))]
        held = getattr(message, first)
        for number in range(growth.count):
            element = some[number % len(some)]
            held.append(element if growth.kind == "alike" else _numbered(field, element, number, growth.kind))


def _numbered(field: Any, element: Any, number: int, kind: str) -> Any:
    if field.message_type is None:
        if field.cpp_type == TEXT:
            text = name(number, kind)
            return text.encode() if isinstance(element, bytes) else text
        return number_of(number, kind) if field.cpp_type in NUMBERS else element
    has_text = False
    for each in field.message_type.fields:
        if each.is_repeated:
            continue
        if each.type == FieldDescriptor.TYPE_STRING and not has_text:
            setattr(element, each.name, name(number, kind))
            has_text = True
        elif "partition" in each.name and each.cpp_type in NUMBERS:
            setattr(element, each.name, number_of(number, kind))
    return element
