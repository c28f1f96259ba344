"""Members of groups as the tests need them: what they were told, what they read, and how they end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from sparklog.base.ids import TopicPartition
from sparklog.client import Consumer, ConsumerRecord

POLLS = 2_000


class Listener:
    """Writes down what it is told, and in which thread."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[TopicPartition]]] = []
        self.threads: set[int] = set()
        self.on: dict[str, Callable[[Sequence[TopicPartition]], None]] = {}

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._note("assigned", partitions)

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._note("revoked", partitions)

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._note("lost", partitions)

    def _note(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        self.told.append((what, list(partitions)))
        self.threads.add(threading.get_ident())
        if what in self.on:
            self.on[what](partitions)


def poll_until(done: Callable[[], bool], *consumers: Consumer) -> list[ConsumerRecord]:
    """Let the consumers poll in turn until `done`; everything they read."""
    records: list[ConsumerRecord] = []
    for _ in range(POLLS):
        if done():
            return records
        for consumer in consumers:
            records += consumer.poll(10)
    raise AssertionError(f"after {POLLS} polls: {[consumer.assignment() for consumer in consumers]}")


def shares(*consumers: Consumer) -> list[int]:
    """How many partitions each consumer has."""
    return [len(consumer.assignment()) for consumer in consumers]


def read(consumers: Iterable[Consumer], count: int) -> list[ConsumerRecord]:
    """`count` records, whoever gets them."""
    records: list[ConsumerRecord] = []
    members = list(consumers)
    for _ in range(POLLS):
        if len(records) >= count:
            return records
        for consumer in members:
            records += consumer.poll(10)
    raise AssertionError(f"{len(records)} records of {count} after {POLLS} polls")


def crash(consumer: Consumer) -> None:
    """What the death of its process does to a consumer: nothing more is sent, the group is not told."""
    consumer._run(consumer._core.release())
