"""Requests of Kafka's protocol of any shape."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from random import Random
from typing import Any, get_args, get_type_hints

from kio.index import load_request_schema

from support.fuzzing.shapes import (
    EACH,
    KNOWN,
    LONGEST_ARRAY,
    LONGEST_STRING,
    LONGEST_TEXT,
    Growth,
    Path,
    Shape,
    long_bytes,
    long_text,
    name,
    number_like,
)
from support.kafka.grown_requests import KINDS, element_of, small
from support.kafka.random_requests import make_request


def build(shape: Shape, key: int, topic_ids: Sequence[uuid.UUID]) -> Any:
    """kio's value; the ids are those of the topics that the broker has."""
    random = Random(shape.seed)
    request = make_request(random, key, shape.version)
    for growth in shape.growths:
        request = _grown(random, request, growth.path, growth, topic_ids)
    return request


@cache
def longest(key: int, version: int) -> Mapping[Path, int]:
    """How long what can grow may be: arrays, strings and bytes, those in the elements of arrays too."""
    return dict(_longest(load_request_schema(key, version)))


def _longest(cls: Any) -> Iterator[tuple[Path, int]]:
    for field, kind in get_type_hints(cls).items():
        if field.startswith("__"):
            continue
        element = element_of(kind)
        if element:
            yield (field,), LONGEST_ARRAY
        if element and _has(element, str):
            yield (field, EACH), LONGEST_STRING
        elif _has(kind, bytes):
            yield (field,), LONGEST_TEXT
        elif _has(kind, str):
            yield (field,), LONGEST_STRING
        if dataclasses.is_dataclass(element):
            yield from (((field, *path), most) for path, most in _longest(element))


def _has(kind: Any, wanted: type) -> bool:
    """Whether a value of the kind may be one of those."""
    return any(isinstance(each, type) and issubclass(each, wanted) for each in (kind, *get_args(kind)))


def _grown(random: Random, value: Any, path: Path, growth: Growth, topic_ids: Sequence[uuid.UUID]) -> Any:
    field, *inner = path
    types = get_type_hints(type(value))
    if field not in types:
        return value  # another version has it
    element = element_of(types[field])
    if inner:
        elements = getattr(value, field) or (small(random, element),)
        if inner == [EACH]:
            return dataclasses.replace(value, **{field: tuple(_long(each, element, growth) for each in elements)})
        grown = getattr(_grown(random, elements[0], tuple(inner), growth, topic_ids), inner[0], ())
        if len(inner) == 1 and element_of(get_type_hints(element).get(inner[0])) is None:
            return dataclasses.replace(
                value,
                **{field: tuple(_grown(random, each, tuple(inner), growth, topic_ids) for each in elements)},
            )
        # Elements may share what they have within, which makes requests of many of them cheap to build.
        return dataclasses.replace(
            value, **{field: tuple(dataclasses.replace(each, **{inner[0]: grown}) for each in elements)}
        )
    if element is None:
        return dataclasses.replace(value, **{field: _long(getattr(value, field), types[field], growth)})
    some = [small(random, element) for _ in range(min(KINDS, growth.count))]
    many = (some[number % len(some)] for number in range(growth.count))
    if growth.kind != "alike":
        many = (_numbered(each, number, growth.kind, topic_ids) for number, each in enumerate(many))
    return dataclasses.replace(value, **{field: tuple(many)})


def _long(value: Any, kind: Any, growth: Growth) -> Any:
    if _has(kind, bytes):
        return long_bytes(growth.count, growth.kind)
    made = long_text(value or "", growth.count, growth.kind)
    return made if value is None else type(value)(made)


def _numbered(value: Any, number: int, kind: str, topic_ids: Sequence[uuid.UUID]) -> Any:
    if isinstance(value, str):
        return type(value)(name(number, kind))
    if isinstance(value, uuid.UUID):
        return topic_ids[number % len(topic_ids)] if kind == KNOWN and topic_ids else uuid.UUID(int=number + 2)
    if isinstance(value, int) and not isinstance(value, bool):
        return number_like(value, int(name(number, kind)))
    if not dataclasses.is_dataclass(value):
        return value
    changed: dict[str, Any] = {}
    has_text = False
    for field, each in ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value)):
        if isinstance(each, str) and not has_text:
            changed[field] = type(each)(name(number, kind))
            has_text = True
        elif isinstance(each, uuid.UUID):
            changed[field] = _numbered(each, number, kind, topic_ids)
        elif "partition" in field and isinstance(each, int):
            changed[field] = number_like(each, int(name(number, kind)))
    return dataclasses.replace(value, **changed)
