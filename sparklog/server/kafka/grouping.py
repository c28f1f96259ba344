"""Grouping of flat lists of partitions by topic, as in Kafka's protocol."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

Key = TypeVar("Key")
Part = TypeVar("Part")


def by_topic(parts: Iterable[tuple[Key, Part]]) -> dict[Key, list[Part]]:
    """Return the parts of each topic. Topics and parts keep their order."""
    found: dict[Key, list[Part]] = {}
    for topic, part in parts:
        found.setdefault(topic, []).append(part)
    return found
