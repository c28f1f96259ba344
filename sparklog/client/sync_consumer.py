"""The consumer for code without an event loop. Records that have been fetched are returned in the caller's thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sparklog.base.ids import TopicPartition
from sparklog.client.consumed import ConsumerRecord
from sparklog.client.consumer import AsyncConsumer
from sparklog.client.loop_thread import Blocking
from sparklog.client.offsets import ListedOffset


class Consumer(Blocking):
    """Reads records from partitions.

        with Consumer(bootstrap_servers="127.0.0.1:9094", auto_offset_reset="earliest") as consumer:
            consumer.assign_topic("orders")
            for record in consumer:
                print(record.offset, record.key, record.value)

    Options are those of ConsumerConfig. Raises ConfigError for any that is wrong. The methods are those of
    AsyncConsumer. Not for several threads at once.
    """

    def __init__(self, **options: Any) -> None:
        self._core = AsyncConsumer(**options)
        self.config = self._core.config
        super().__init__()
        self._run(self._core.start())

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """As AsyncConsumer.assign."""
        self._core.assign(partitions)

    def assign_topic(self, topic: str) -> list[TopicPartition]:
        """As AsyncConsumer.assign_topic."""
        return self._run(self._core.assign_topic(topic))

    def assignment(self) -> list[TopicPartition]:
        """As AsyncConsumer.assignment."""
        return self._core.assignment()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """As AsyncConsumer.seek."""
        self._core.seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """As AsyncConsumer.seek_to_beginning."""
        self._core.seek_to_beginning(*partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """As AsyncConsumer.seek_to_end."""
        self._core.seek_to_end(*partitions)

    def seek_to_timestamp(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """As AsyncConsumer.seek_to_timestamp."""
        self._core.seek_to_timestamp(timestamp_ms, *partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        """As AsyncConsumer.pause."""
        self._core.pause(*partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """As AsyncConsumer.resume."""
        self._core.resume(*partitions)

    def paused(self) -> list[TopicPartition]:
        """As AsyncConsumer.paused."""
        return self._core.paused()

    def position(self, partition: TopicPartition) -> int:
        """As AsyncConsumer.position."""
        known = self._core.known_position(partition)
        return self._run(self._core.position(partition)) if known is None else known

    def poll(self, timeout_ms: int = 1_000, max_records: int | None = None) -> list[ConsumerRecord]:
        """As AsyncConsumer.poll."""
        return self._core.take(max_records) or self._run(self._core.poll(timeout_ms, max_records))

    def poll_arrow(self, timeout_ms: int = 1_000, max_records: int | None = None) -> Any:
        """As AsyncConsumer.poll_arrow."""
        table = self._core.take_arrow(max_records)
        return table if table.num_rows else self._run(self._core.poll_arrow(timeout_ms, max_records))

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Records as they come, without end."""
        while True:
            yield from self.poll()

    def partitions_for(self, topic: str) -> list[TopicPartition]:
        """As AsyncConsumer.partitions_for."""
        return self._run(self._core.partitions_for(topic))

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """As AsyncConsumer.beginning_offsets."""
        return self._run(self._core.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """As AsyncConsumer.end_offsets."""
        return self._run(self._core.end_offsets(partitions))

    def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, ListedOffset | None]:
        """As AsyncConsumer.offsets_for_times."""
        return self._run(self._core.offsets_for_times(timestamps_ms))

    def close(self) -> None:
        """As AsyncConsumer.close."""
        self._run(self._core.close())
