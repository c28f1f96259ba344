"""Sinks in the world of the simulated coordinator, and partitions that take their records and markers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sparklog.base.ids import TopicPartition
from sparklog.transaction.requests import TV2, AddPartitions
from sparklog.transaction.sink_changes import SinkMarkers, sink_of
from sparklog.transaction.sink_requests import AbortBatch, CommitBatch, JoinBatch, ResetSink, Winner
from sparklog.transaction_topic.sinks import SinkValue
from support.transactions.coordinator import TIMEOUT_MS, SimCoordinator, partitions_named

SINK = "spark-query"
Producer = tuple[int, int]


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return found


class SimSinks(SimCoordinator):
    """A coordinator whose transactional ids are sinks; its `markers` are the effects of sinks."""

    def join(self, batch: int, run: str = "run", *, name: str = SINK, known: Producer = (-1, -1), **fields: Any) -> Any:
        request = JoinBatch(
            sink_id=name, run_id=run, batch_id=batch, producer_id=known[0], producer_epoch=known[1],
            **{"timeout_ms": TIMEOUT_MS, **fields},
        )  # fmt: skip
        return self.ask(lambda: self.shard.join_batch(request, self.fresh_for(name), self.now_ms))

    def fresh_for(self, name: str) -> list[int]:
        return [self.new_id() for _ in range(self.sinks.needed_producer_ids(name))]

    def enrol(self, names: str, producer: Producer, *, name: str = SINK, verify: bool = False) -> Any:
        request = AddPartitions(
            transactional_id=name, producer_id=producer[0], producer_epoch=producer[1],
            partitions=partitions_named(names), is_verify_only=verify, transaction_version=TV2,
        )  # fmt: skip
        return self.ask(lambda: self.shard.add_partitions(request, self.now_ms))

    def commit_batch(self, batch: int, winners: dict[Producer, str], run: str = "run", name: str = SINK) -> Any:
        named = [
            Winner(producer_id=each[0], producer_epoch=each[1], topics=by_topic(partitions_named(names)))
            for each, names in winners.items()
        ]
        request = CommitBatch(sink_id=name, run_id=run, batch_id=batch, winners=named)
        return self.ask(lambda: self.sinks.commit_batch(request, self.now_ms))

    def abort_batch(self, batch: int, run: str = "run", name: str = SINK) -> Any:
        request = AbortBatch(sink_id=name, run_id=run, batch_id=batch)
        return self.ask(lambda: self.sinks.abort_batch(request, self.now_ms))

    def reset(self, name: str = SINK) -> Any:
        return self.ask(lambda: self.sinks.reset(ResetSink(sink_id=name), self.now_ms))

    def abort_timed_out(self) -> None:
        for name in self.sinks.timed_out(self.now_ms):
            self.carry_out(self.sinks.abort_timed_out(name, self.now_ms))

    def expire(self) -> None:
        self.carry_out(self.sinks.expire(self.now_ms))

    def write_markers(self, names: str | None = None) -> None:
        """All markers that are to be sent are written and reported."""
        assert names is None
        for effect in list(self.markers):
            self.markers.remove(effect)
            self.report(effect)

    def report(self, effect: Any) -> None:
        self.carry_out(self.sinks.markers_written(effect.sink_id, effect.markers, self.now_ms))

    def sink(self, name: str = SINK) -> SinkValue:
        return sink_of(self.value(name))


class SimPartitions:
    """What the leaders of partitions know of producers, and the rows that readers of committed records see."""

    def __init__(self) -> None:
        self.epochs: dict[tuple[TopicPartition, int], int] = {}
        self.open: dict[tuple[TopicPartition, int], list[Any]] = {}
        self.committed: list[Any] = []
        self.markers_seen: dict[tuple[TopicPartition, int], int] = {}

    def verification(self, partition: TopicPartition, producer_id: int) -> int:
        """A ticket for a first batch; any marker of the producer makes it void."""
        return self.markers_seen.get((partition, producer_id), 0)

    def append(self, partition: TopicPartition, producer: Producer, row: Any, ticket: int) -> bool:
        """Whether the leader takes a batch."""
        key = (partition, producer[0])
        if self.epochs.get(key, producer[1]) > producer[1]:
            return False
        if key not in self.open and ticket != self.verification(*key):
            return False
        self.epochs[key] = producer[1]
        self.open.setdefault(key, []).append(row)
        return True

    def mark(self, markers: Iterable[SinkMarkers]) -> bool:
        """Whether the leaders take all markers, or have them already."""
        taken = [self._mark(partition, marker) for marker in markers for partition in marker.partitions]
        return all(taken)

    def _mark(self, partition: TopicPartition, marker: SinkMarkers) -> bool:
        key = (partition, marker.producer_id)
        known = self.epochs.get(key, -1)
        if marker.producer_epoch < known or (key in self.open and marker.producer_epoch == known):
            return False
        rows = self.open.pop(key, [])
        self.committed += rows if marker.is_commit else []
        self.epochs[key] = marker.producer_epoch
        self.markers_seen[key] = self.markers_seen.get(key, 0) + 1
        return True
