"""Members of groups as the tests need them: what they were told, what they read, and how they end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from sparklog.base.ids import TopicPartition
from sparklog.client import Consumer, ConsumerRecord
from support.patience import wait_until


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

    def is_done_or_poll() -> bool:
        if done():
            return True
        for consumer in consumers:
            records.extend(consumer.poll(10))
        return False

    def tell() -> object:
        return [consumer.assignment() for consumer in consumers]

    wait_until(is_done_or_poll, "the group is as the test waits for it", tell=tell, every_s=0)
    return records


def shares(*consumers: Consumer) -> list[int]:
    """How many partitions each consumer has."""
    return [len(consumer.assignment()) for consumer in consumers]


def read(consumers: Iterable[Consumer], count: int) -> list[ConsumerRecord]:
    """`count` records, whoever gets them."""
    records: list[ConsumerRecord] = []
    members = list(consumers)

    def has_read_or_poll() -> bool:
        if len(records) >= count:
            return True
        for consumer in members:
            records.extend(consumer.poll(10))
        return False

    wait_until(has_read_or_poll, f"{count} records are read", tell=lambda: f"{len(records)} have come", every_s=0)
    return records


def crash(consumer: Consumer) -> None:
    """What the death of its process does to a consumer: nothing more is sent, the group is not told."""
    consumer._run(consumer._core.release())
