"""What a fuzzed request looks like: a small random one, some of whose arrays, strings, bytes and tags are long, and
some of whose numbers are large.

As text, `v5 s17 topics*300known topics/partitions*20numbered`: the version of the API, the seed of the small request,
then what is long, by its path. The same text makes the same request again.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from sparklog.base.consumer_protocol import Subscription, write_subscription
from sparklog.base.protobuf import varint
from sparklog.records.records import Record, write_records

Path = tuple[str, ...]
ALIKE, NUMBERED, KNOWN, SAME = KINDS = ("alike", "numbered", "known", "same")
"""The elements of a long array: a few ones again and again, all different, what the broker has, or again and again the
one that takes the broker most.

A long string is of one letter, of alternatives, or of brackets in brackets, as a pattern might be; long bytes are one
byte again and again, a consumer's subscription to that many topics, or that many batches of one record. Tags are so
many empty ones, one of so many bytes, or the first one again and again. A large number is that, or that below zero.
"""
LONGEST_ARRAY = 60_000
LONGEST_STRING = 30_000
"""About what a string of Kafka's protocol may have at most."""
LONGEST_TEXT = 4_000_000
LONGEST_TAGS = 300_000
MOST_PARTITIONS = 3_000
"""Of a topic that a request makes: more would take the broker minutes to remove again."""
LARGEST = 2**31 - 1
EACH = "each"
"""The last part of a path: the strings of an array."""
HEADER, TAGS = "header", "tags"
"""The first and the last part of a path: the tags of the header, of the request, or of an array's elements."""
KNOWN_NAMES = 30
"""The broker has topics and groups of these numbers for names."""
LARGE = "large"
"""The topic and the group that have most."""
FIRST_TAG = 1_000
"""Far from those with a meaning."""
BATCH = bytes(write_records([Record(offset=0, timestamp_ms=1, value=b"")]))


@dataclass(frozen=True, slots=True)
class Growth:
    """What stands at a path is so many times as long."""

    path: Path
    count: int
    kind: str

    def __str__(self) -> str:
        return f"{'/'.join(self.path)}*{self.count}{self.kind}"

    @classmethod
    def parse(cls, text: str) -> Growth:
        path, _, rest = text.partition("*")
        kind = next(kind for kind in KINDS if rest.endswith(kind))
        return cls(tuple(path.split("/")), int(rest.removesuffix(kind)), kind)


@dataclass(frozen=True, slots=True)
class Shape:
    """Growths are in the order of their paths: an array before what is in its elements."""

    version: int
    seed: int
    growths: tuple[Growth, ...] = ()

    def __str__(self) -> str:
        return " ".join((f"v{self.version}", f"s{self.seed}", *map(str, self.growths)))

    @classmethod
    def parse(cls, text: str) -> Shape:
        version, seed, *growths = text.split()
        return cls(int(version[1:]), int(seed[1:]), tuple(map(Growth.parse, growths)))

    def with_growths(self, growths: Sequence[Growth]) -> Shape:
        by_path = {growth.path: growth for growth in growths}
        return dataclasses.replace(
            self, growths=tuple(by_path[path] for path in sorted(by_path) if by_path[path].count)
        )

    def counts(self) -> dict[Path, int]:
        """How much there is in all at each path that grows: what is within an array is there many times."""
        return {
            growth.path: math.prod(
                outer.count for outer in self.growths if growth.path[: len(outer.path)] == outer.path
            )
            for growth in self.growths
        }

    def fits(self, longest: Mapping[Path, int]) -> bool:
        """Whether nothing is longer in all than it may be, by its path."""
        return all(count <= longest.get(path, 0) for path, count in self.counts().items())

    def smaller(self) -> Shape:
        """The same with the greatest count halved."""
        longest = max(self.growths, key=lambda growth: growth.count)
        return self.with_growths([*self.growths, dataclasses.replace(longest, count=longest.count // 2)])


def mutate(random: Random, shape: Shape, paths: Sequence[Path], versions: tuple[int, int]) -> Shape:
    """A shape that differs in one thing; `paths` are those that can grow."""
    grown = list(shape.growths)
    what = random.choice(("seed", "version", "more", "more", "fewer", "kind", "add", "add", "drop"))
    if what == "seed" or (what == "add" and not paths) or (what not in ("version", "add") and not grown):
        return dataclasses.replace(shape, seed=random.randrange(1_000_000))
    if what == "version":
        return dataclasses.replace(shape, version=random.randint(*versions))
    if what == "add":
        added = Growth(random.choice(paths), random.choice((2, 20, 200, 1_000)), random.choice(KINDS))
        return shape.with_growths([*grown, added])
    chosen = grown.pop(random.randrange(len(grown)))
    if what == "kind":
        grown.append(dataclasses.replace(chosen, kind=random.choice(KINDS)))
    elif what != "drop":
        factor = random.choice((2, 4, 16)) if what == "more" else random.choice((0.25, 0.5))
        grown.append(dataclasses.replace(chosen, count=max(1, int(chosen.count * factor))))
    return shape.with_growths(grown)


def name(number: int, kind: str) -> str:
    """That of an element; a known one is a topic's and a group's."""
    if kind == SAME:
        return LARGE
    return str(number % KNOWN_NAMES) if kind == KNOWN else str(number)


def long_text(text: str, count: int, kind: str) -> str:
    match kind:
        case "alike":
            return text + "x" * count
        case "numbered":
            return "|".join(map(str, range(count // 2)))
        case _:
            return "(" * (count // 2) + ")" * (count // 2)


def long_bytes(count: int, kind: str) -> bytes:
    match kind:
        case "alike":
            return b"x" * count
        case "numbered":
            return write_subscription(Subscription(topics=[str(number) for number in range(count)]))
        case _:
            return BATCH * count


def number_of(number: int, kind: str) -> int:
    """That of an element; the same one is the first."""
    return 0 if kind == SAME else int(name(number, kind))


def large_number(field: str) -> int:
    """How large a number may be, by its name; 0: it has no meaning that grows with it."""
    if field.endswith(("_ms", "_wait")):
        return 0  # the broker would wait for so long
    return MOST_PARTITIONS if field in ("num_partitions", "partitions", "count") else LARGEST


def tags(count: int, kind: str) -> bytes:
    """Tagged fields as they stand in Kafka's protocol."""
    if kind == NUMBERED:
        return varint(1) + varint(FIRST_TAG) + varint(count) + bytes(count)
    first, step = (FIRST_TAG, 1) if kind == ALIKE else (0, 0)
    return varint(count) + b"".join(varint(first + step * number) + varint(0) for number in range(count))


def number_like(value: Any, number: int) -> Any:
    """The number in the type of an integer of few bits."""
    try:
        return type(value)(number)
    except (TypeError, ValueError, OverflowError):
        return value
