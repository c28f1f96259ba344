"""Parsers of single option values, from text to value.

A parser raises ValueError, KeyError, TypeError, AttributeError or InvalidTopic for a text that is not allowed.
`option_parsing` turns that into a ConfigError with the name of the option and the allowed values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from sparklog.base.config_keys import MAX_LONG
from sparklog.base.errors import ConfigError
from sparklog.base.ids import TopicPartition, check_topic
from sparklog.spark.source.options import (
    EARLIEST_IN_JSON,
    Assign,
    CommittedOffsets,
    Edge,
    Position,
    SpecificOffsets,
    Subscribe,
    SubscribePattern,
)

_BYTES = {
    "": 0, "b": 0, "k": 10, "kb": 10, "m": 20, "mb": 20, "g": 30, "gb": 30, "t": 40, "tb": 40, "p": 50, "pb": 50,
}  # fmt: skip
_MILLISECONDS = {
    "": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip
_QUANTITY = re.compile(r"(\d{1,18})\s*([a-z]*)")


def whole_number(low: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from `low` to MAX_LONG."""

    def parse(raw: str) -> int:
        number = int(raw)
        if not low <= number <= MAX_LONG:
            raise ValueError
        return number

    return parse


def positive(parse: Callable[[str], int]) -> Callable[[str], int]:
    """Return a parser that allows what `parse` does, from 1 to MAX_LONG."""
    return lambda raw: whole_number(1)(str(parse(raw)))


def parse_bytes(raw: str) -> int:
    """Return a number of bytes: ``1048576``, ``1024k``, ``1mb``. Each unit is 1024 of the next smaller one.

    Raises ValueError or KeyError.
    """
    count, unit = _split_quantity(raw)
    return count << _BYTES[unit]


def parse_time_ms(raw: str) -> int:
    """Return a time in ms: ``90s``, ``15m``, ``1h``. A number without a unit is in ms.

    Raises ValueError or KeyError.
    """
    count, unit = _split_quantity(raw)
    return count * _MILLISECONDS[unit]


def parse_boolean(raw: str) -> bool:
    """Return the value of ``true`` or ``false``."""
    return {"true": True, "false": False}[raw.strip().lower()]


def parse_text(raw: str) -> str:
    """Return a text that is not blank."""
    if not raw.strip():
        raise ValueError(raw)
    return raw


def parse_sink_id(raw: str) -> str:
    """Return an id that can be part of a transactional id."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", raw):
        raise ValueError(raw)
    return raw


def parse_topic(raw: str) -> str:
    """Return the name of a topic. Raises InvalidTopic."""
    return check_topic(raw.strip())


def parse_topics(raw: str) -> Subscribe:
    """Return the topics in a list separated by commas, each once. Raises InvalidTopic."""
    return Subscribe(tuple(dict.fromkeys(parse_topic(name) for name in raw.split(","))))


def parse_pattern(raw: str) -> SubscribePattern:
    """Return the topics that match a regular expression. Raises ConfigError with the mistake in it."""
    try:
        re.compile(raw)
    except re.error as wrong:
        raise ConfigError(f"option subscribePattern = {raw!r}: it is no regular expression: {wrong}") from None
    return SubscribePattern(raw)


def parse_assignment(raw: str) -> Assign:
    """Return the partitions in JSON such as ``{"topic": [0, 1]}``."""
    topics: dict[str, list[int]] = json.loads(raw)
    partitions = frozenset(
        TopicPartition(check_topic(topic), _check_number(partition, low=0))
        for topic, numbers in topics.items()
        for partition in numbers
    )
    if not partitions:
        raise ValueError
    return Assign(partitions)


def parse_offsets(raw: str) -> Position:
    """Return the position of ``earliest``, ``latest``, or JSON such as ``{"topic": {"0": 23, "1": -2}}``."""
    if raw.strip().lower() in ("earliest", "latest"):
        return Edge[raw.strip().upper()]
    return SpecificOffsets(_per_partition(raw, low=EARLIEST_IN_JSON))


def parse_starting_offsets(raw: str) -> Position:
    """Return the position as `parse_offsets` does, or the committed offsets for ``group``."""
    return CommittedOffsets() if raw.strip().lower() == "group" else parse_offsets(raw)


def parse_timestamps(raw: str) -> dict[TopicPartition, int]:
    """Return the timestamps in ms in JSON such as ``{"topic": {"0": 1700000000000}}``."""
    return _per_partition(raw, low=0)


def parse_acks(raw: str) -> str | int:
    """Return the producer's `acks`: ``all`` (or ``-1``), 1 or 0."""
    word = raw.strip().lower()
    return "all" if word in ("all", "-1") else {"1": 1, "0": 0}[word]


def parse_codec(raw: str) -> str:
    """Return the name of a compression codec."""
    return {name: name for name in ("none", "gzip", "snappy", "lz4", "zstd")}[raw.strip().lower()]


def parse_ids_in_headers(raw: str) -> bool:
    """Return whether headers carry the ids of schemas: ``header`` is true, ``prefix`` is false."""
    return ("prefix", "header").index(raw.strip().lower()) == 1


def parse_url(raw: str) -> str:
    """Return an http or https URL."""
    if not raw.startswith(("http://", "https://")):
        raise ValueError(raw)
    return raw


def parse_urls(raw: str) -> tuple[str, ...]:
    """Return the URLs in a list separated by commas."""
    return tuple(parse_url(each.strip()) for each in raw.split(","))


def _split_quantity(raw: str) -> tuple[int, str]:
    found = _QUANTITY.fullmatch(raw.strip().lower())
    if found is None:
        raise ValueError(raw)
    return int(found[1]), found[2]


def _per_partition(raw: str, low: int) -> dict[TopicPartition, int]:
    topics: dict[str, dict[str, int]] = json.loads(raw)
    return {
        TopicPartition(check_topic(topic), int(partition)): _check_number(number, low=low)
        for topic, numbers in topics.items()
        for partition, number in numbers.items()
    }


def _check_number(value: Any, *, low: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise ValueError(value)
    return value
