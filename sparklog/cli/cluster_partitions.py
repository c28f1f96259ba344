"""Functions of the `sparklog cluster` tools that find partitions, all or by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from sparklog.base.ids import TopicPartition

if TYPE_CHECKING:
    from sparklog.client import Admin
    from sparklog.client.admin.descriptions import PartitionDescription

NOTHING = "-"
"""The text of a table cell without a value."""
NamedPartition = tuple[TopicPartition, "PartitionDescription"]


def all_partitions(admin: Admin, topics: Iterable[str] | None = None) -> list[NamedPartition]:
    """Return the partitions of these topics, or of all topics, including internal ones."""
    if topics is None:
        topics = [topic.name for topic in admin.list_topics(include_internal=True)]
    return [
        (TopicPartition(topic.name, part.partition), part)
        for topic in admin.describe_topics(topics)
        for part in topic.partitions
    ]


def parse_partitions(admin: Admin, texts: Iterable[str]) -> list[TopicPartition]:
    """Return the partitions named by --topic TOPIC or TOPIC:0,1. Raises click.UsageError or UnknownTopicOrPartition."""
    numbers: dict[str, list[int] | None] = {}
    for text in texts:
        topic, colon, listed = text.partition(":")
        try:
            numbers[topic] = [int(number) for number in listed.split(",")] if colon else None
        except ValueError:
            raise click.UsageError(f"--topic {text}: write TOPIC, or TOPIC:0,1 for some partitions") from None
    whole = [topic for topic, chosen in numbers.items() if chosen is None]
    named = [TopicPartition(topic, number) for topic, chosen in numbers.items() for number in chosen or ()]
    return named + [name for name, _ in all_partitions(admin, whole)]
