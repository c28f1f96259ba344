"""Lists of partitions on Kafka's wire are lists of topics, each with its partitions; inside they are flat."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

Key = TypeVar("Key")
Part = TypeVar("Part")


def by_topic(parts: Iterable[tuple[Key, Part]]) -> dict[Key, list[Part]]:
    """The parts of each topic, both in the order in which they came."""
    found: dict[Key, list[Part]] = {}
    for topic, part in parts:
        found.setdefault(topic, []).append(part)
    return found
