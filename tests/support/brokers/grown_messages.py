"""Messages of gRPC that are as long as they are told to be: one of their repeated fields has ever more elements."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

TEXTS = ("", "a", "orders", "consumer", "range")
NUMBERS = (0, 1, 2, 5, -1)
Path = tuple[str, ...]


def repeated_fields(descriptor: Any) -> Iterator[Path]:
    """Where the message has repeated fields, the nested ones too."""
    for field in descriptor.fields:
        if field.is_repeated:
            yield (field.name,)
        if field.message_type and not field.message_type.GetOptions().map_entry:
            yield from ((field.name, *path) for path in repeated_fields(field.message_type))


def grow(random: Random, descriptor: Any, path: Path, size: int, *, numbered: bool) -> bytes:
    """A message of about `size` bytes, nearly all of them in the field at `path`; numbered elements are all different
    ones.
    """
    message = small(random, descriptor)
    holder = message
    for name in path[:-1]:
        holder = getattr(holder, name)
        if hasattr(holder, "add"):
            holder = holder.add()
        else:
            holder.SetInParent()
    field = holder.DESCRIPTOR.fields_by_name[path[-1]]
    elements = getattr(holder, field.name)
    if field.message_type and field.message_type.GetOptions().map_entry:
        is_text = field.message_type.fields_by_name["value"].cpp_type == FieldDescriptor.CPPTYPE_STRING
        for number in range(size // 10):
            elements[str(number)] = "1" if is_text else 1
        return message.SerializeToString()
    total = number = 0
    while total < size:
        element = element_of(random, field)
        if numbered:
            element = _numbered(element, number)
        elements.append(element)
        total += 2 + (element.ByteSize() if field.message_type else len(str(element)))
        number += 1
    return message.SerializeToString()


def small(random: Random, descriptor: Any) -> Any:
    """A message of few bytes, with nothing in its repeated fields."""
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if not field.is_repeated and not field.message_type and random.random() < 0.7:
            setattr(message, field.name, _value(random, field))
    return message


def element_of(random: Random, field: Any) -> Any:
    return small(random, field.message_type) if field.message_type else _value(random, field)


def _value(random: Random, field: Any) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            return b"" if field.type == FieldDescriptor.TYPE_BYTES else random.choice(TEXTS)
        case FieldDescriptor.CPPTYPE_BOOL:
            return random.random() < 0.5
        case FieldDescriptor.CPPTYPE_ENUM:
            return random.choice(field.enum_type.values).number
        case _:
            return max(0, random.choice(NUMBERS)) if "max_wait" in field.name else random.choice(NUMBERS)


def _numbered(element: Any, number: int) -> Any:
    """The same, with another text than any other has."""
    if isinstance(element, str):
        return str(number)
    if hasattr(element, "DESCRIPTOR"):
        for field in element.DESCRIPTOR.fields:
            if field.type == FieldDescriptor.TYPE_STRING and not field.is_repeated:
                setattr(element, field.name, str(number))
                break
    return element
