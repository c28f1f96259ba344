"""Requests of any API and version with whatever in them, from a seed: well formed, as far as kio's schema goes."""

from __future__ import annotations

import dataclasses
import datetime
import uuid
from collections.abc import Callable
from random import Random
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from kio.static.primitive import Interval

LIKELY_TEXTS = (
    "fuzzed",
    "orders",
    "",
    "consumer",
    "range",
    "consumer-1",
    "__consumer_offsets",
    "\u00e4" * 40,
    "x" * 300,
)
LIKELY_NUMBERS = (0, 1, -1, 2, 5, 100, -2)
SHORT_TIMES_MS = (0, 1, 50, -1)
MAX_ELEMENTS = 3


def make_request(random: Random, key: int, version: int) -> Any:
    """A request of kio's, with random values in all its fields."""
    return _entity(random, load_request_schema(key, version))


def _entity(random: Random, cls: Any) -> Any:
    types = get_type_hints(cls)
    return cls(**{field.name: _field(random, field.name, types[field.name]) for field in dataclasses.fields(cls)})


def _field(random: Random, name: str, kind: Any) -> Any:
    """A value for a field; nobody is to wait long for an answer."""
    if any(word in name for word in ("timeout", "wait")) and isinstance(kind, type) and issubclass(kind, int):
        return random.choice(SHORT_TIMES_MS)
    return make_value(random, kind)


def make_value(random: Random, kind: Any) -> Any:
    """Any value of a field of this type."""
    if get_origin(kind) in (Union, UnionType):
        chosen = random.choice(get_args(kind))
        return None if chosen is NoneType else make_value(random, chosen)
    if get_origin(kind) is tuple:
        return tuple(make_value(random, get_args(kind)[0]) for _ in range(random.randrange(MAX_ELEMENTS + 1)))
    if dataclasses.is_dataclass(kind):
        return _entity(random, kind)
    return _simple(random, kind)


def _simple(random: Random, kind: Any) -> Any:
    for known, make in _MAKERS:
        if issubclass(kind, known):
            return make(random, kind)
    raise TypeError(f"no values for {kind}")


def _number(random: Random, kind: Any) -> int:
    low, high = (kind.__low__, kind.__high__) if issubclass(kind, Interval) else (-(2**31), 2**31 - 1)
    number = random.choice((*LIKELY_NUMBERS, low, high, random.randint(low, high)))
    return min(max(number, low), high)


_MAKERS: tuple[tuple[type, Callable[[Random, Any], Any]], ...] = (
    (bool, lambda random, _: random.random() < 0.5),
    (ErrorCode, lambda *_: ErrorCode.none),
    (int, _number),
    (float, lambda random, _: random.random()),
    (str, lambda random, _: random.choice(LIKELY_TEXTS)),
    (bytes, lambda random, _: random.randbytes(random.choice((0, 1, 12, 61, 200)))),
    (uuid.UUID, lambda random, _: uuid.UUID(int=random.getrandbits(128))),
    (datetime.timedelta, lambda random, _: datetime.timedelta(milliseconds=random.choice(SHORT_TIMES_MS))),
    (datetime.datetime, lambda random, _: datetime.datetime.fromtimestamp(random.randrange(2**31), datetime.UTC)),
)
