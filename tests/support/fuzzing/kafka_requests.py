"""Requests of Kafka's protocol of any shape."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from random import Random
from typing import Any, get_args, get_type_hints

from kio.index import load_request_schema

from sparklog.server.kafka.messages import write
from support.fuzzing.shapes import (
    EACH,
    HEADER,
    KNOWN,
    LONGEST_ARRAY,
    LONGEST_STRING,
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
    number_like,
    number_of,
    tags,
)
from support.kafka.connection import message_frame
from support.kafka.grown_requests import KINDS, element_of, small
from support.kafka.random_requests import make_request


def build(shape: Shape, key: int, topic_ids: Sequence[uuid.UUID]) -> bytes:
    """The request with its header; the ids are those of the topics that the broker has, the largest one the last."""
    random = Random(shape.seed)
    request = make_request(random, key, shape.version)
    tagged = [growth for growth in shape.growths if growth.path[-1] == TAGS]
    for growth in shape.growths:
        if growth not in tagged:
            request = _grown(random, request, growth.path, growth, topic_ids)
    body, frame = write(request), message_frame(request)
    header = frame[: len(frame) - len(body)]
    if request.__flexible__:
        for growth in sorted(tagged, key=lambda growth: -len(growth.path)):  # what ends the request stays its end
            if growth.path[0] == HEADER:
                header = _tagged(header, growth)
            else:
                body = _with_tags(body, request, growth)
    return header + body


def _with_tags(body: bytes, request: Any, growth: Growth) -> bytes:
    elements: tuple[Any, ...] = (request,)
    for field in growth.path[:-1]:
        elements = next((found for each in elements if (found := getattr(each, field, None))), ())
    written = [write(each) for each in elements]
    if not written:
        return body
    return body.replace(b"".join(written), b"".join(_tagged(each, growth) for each in written))


def _tagged(data: bytes, growth: Growth) -> bytes:
    """The bytes of a structure, which end with the number of its tags, with others."""
    return data[:-1] + tags(growth.count, growth.kind) if data.endswith(b"\0") else data


@cache
def longest(key: int, version: int) -> Mapping[Path, int]:
    """How long what can grow may be: arrays, strings and bytes, those in the elements of arrays too."""
    cls = load_request_schema(key, version)
    return ({(HEADER, TAGS): LONGEST_TAGS} if cls.__flexible__ else {}) | dict(_longest(cls))


def _longest(cls: Any) -> Iterator[tuple[Path, int]]:
    if cls.__flexible__:
        yield (TAGS,), LONGEST_TAGS
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
        elif _is_number(kind) and (most := large_number(field)):
            yield (field,), most
        if dataclasses.is_dataclass(element):
            yield from (((field, *path), most) for path, most in _longest(element))


def _has(kind: Any, wanted: type) -> bool:
    """Whether a value of the kind may be one of those."""
    return any(isinstance(each, type) and issubclass(each, wanted) for each in (kind, *get_args(kind)))


def _is_number(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, int) and kind is not bool and not issubclass(kind, Enum)


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
    if _is_number(kind):
        return number_like(value, growth.count if growth.kind != SAME else -growth.count)
    if _has(kind, bytes):
        return long_bytes(growth.count, growth.kind)
    made = long_text(value or "", growth.count, growth.kind)
    return made if value is None else type(value)(made)


def _numbered(value: Any, number: int, kind: str, topic_ids: Sequence[uuid.UUID]) -> Any:
    if isinstance(value, str):
        return type(value)(name(number, kind))
    if isinstance(value, uuid.UUID):
        if kind == SAME and topic_ids:
            return topic_ids[-1]
        return topic_ids[number % len(topic_ids)] if kind == KNOWN and topic_ids else uuid.UUID(int=number + 2)
    if isinstance(value, int) and not isinstance(value, bool):
        return number_like(value, number_of(number, kind))
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
            changed[field] = number_like(each, number_of(number, kind))
    return dataclasses.replace(value, **changed)
