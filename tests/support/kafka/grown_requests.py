"""Requests of any API that are as long as they are told to be: one of their arrays has ever more elements."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from random import Random
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from kio.index import load_request_schema

from sparklog.server.kafka.messages import write
from support.kafka.random_requests import make_request, make_value

TEXTS = ("", "a", "orders", "consumer", "range")
KINDS = 20
"""How many different elements there are where they are not numbered."""
Path = tuple[str, ...]


def arrays(key: int, version: int) -> list[Path]:
    """Where the request has arrays, the nested ones too."""
    return list(_arrays(load_request_schema(key, version)))


def grow(random: Random, key: int, version: int, path: Path, size: int, *, numbered: bool) -> Any:
    """A request of about `size` bytes, nearly all of them in the array at `path`; numbered elements are all different
    ones.
    """
    return _grown(random, make_request(random, key, version), path, size, numbered)


def _arrays(cls: Any) -> Iterator[Path]:
    for name, kind in get_type_hints(cls).items():
        if element := element_of(kind):
            yield (name,)
            if dataclasses.is_dataclass(element):
                yield from ((name, *path) for path in _arrays(element))


def element_of(kind: Any) -> Any:
    """What an array's elements are; None of what is no array."""
    for each in get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,):
        if each is not NoneType and get_origin(each) is tuple:
            return get_args(each)[0]
    return None


def _grown(random: Random, value: Any, path: Path, size: int, numbered: bool) -> Any:
    name, *inner = path
    element = element_of(get_type_hints(type(value))[name])
    if inner:
        return dataclasses.replace(
            value, **{name: (_grown(random, small(random, element), tuple(inner), size, numbered),)}
        )
    some = tuple(small(random, element) for _ in range(KINDS))
    more = len(write(dataclasses.replace(value, **{name: some * 2}))) - len(
        write(dataclasses.replace(value, **{name: some}))
    )
    count = max(1, size * KINDS // more)
    many = itertools.islice(itertools.cycle(some), count)
    if numbered:
        many = (_numbered(each, number) for number, each in enumerate(many))
    return dataclasses.replace(value, **{name: tuple(many)})


def small(random: Random, kind: Any) -> Any:
    """A value of few bytes."""
    if get_origin(kind) in (Union, UnionType):
        chosen = random.choice(get_args(kind))
        return None if chosen is NoneType else small(random, chosen)
    if get_origin(kind) is tuple:
        return ()
    if dataclasses.is_dataclass(kind):
        types = get_type_hints(kind)
        return kind(**{field.name: small(random, types[field.name]) for field in dataclasses.fields(kind)})
    if issubclass(kind, str):
        return kind(random.choice(TEXTS))
    return b"" if issubclass(kind, bytes) else make_value(random, kind)


def _numbered(value: Any, number: int) -> Any:
    """The same, with another text than any other has."""
    if isinstance(value, str):
        return type(value)(number)
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            if isinstance(text := getattr(value, field.name), str):
                return dataclasses.replace(value, **{field.name: type(text)(number)})
    return value
