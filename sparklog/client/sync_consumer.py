"""The consumer for code without an event loop. Records that have been fetched are returned in the caller's thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Unpack

from sparklog.base.ids import TopicPartition
from sparklog.client.commits import OffsetAndMetadata, Offsets
from sparklog.client.committer import Callback
from sparklog.client.consumed import ConsumerRecord
from sparklog.client.consumer import AsyncConsumer
from sparklog.client.listeners import check_plain
from sparklog.client.loop_thread import Blocking
from sparklog.client.offsets import ListedOffset
from sparklog.client.options import ConsumerOptions


class Consumer(Blocking):
    """Reads records from partitions.

        with Consumer(bootstrap_servers="127.0.0.1:9094", group_id="billing") as consumer:
            consumer.subscribe(["orders"])  # or consumer.assign_topic("orders"), without a group
            for record in consumer:
                print(record.offset, record.key, record.value)

    Options are those of ConsumerConfig. Raises ConfigError for any that is wrong. The methods are those of
    AsyncConsumer. Not for several threads at once.
    """

    def __init__(self, **options: Unpack[ConsumerOptions]) -> None:
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

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        *,
        pattern: str | None = None,
        deny: str | None = None,
        listener: Any = None,
    ) -> None:
        """As AsyncConsumer.subscribe; the listener's methods are called in the thread that polls."""
        check_plain(listener)
        self._core.subscribe(topics, pattern=pattern, deny=deny, listener=listener)

    def unsubscribe(self) -> None:
        """As AsyncConsumer.unsubscribe."""
        if self._core.is_subscribed:
            self._leave("unsubscribe")

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
        if not self._core.needs_poll and (records := self._core.take(max_records)):
            return records
        self._wait(timeout_ms)
        return self._core.take(max_records)

    def poll_arrow(self, timeout_ms: int = 1_000, max_records: int | None = None) -> Any:
        """As AsyncConsumer.poll_arrow."""
        if not self._core.needs_poll and (table := self._core.take_arrow(max_records)).num_rows:
            return table
        self._wait(timeout_ms)
        return self._core.take_arrow(max_records)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Records as they come, without end."""
        unread = self._core.unread
        while True:
            unread.extend(self.poll())
            while unread:
                yield unread.popleft()

    def commit(self, offsets: Offsets | None = None) -> None:
        """As AsyncConsumer.commit."""
        self._run(self._core.commit(offsets))

    def commit_async(self, offsets: Offsets | None = None, callback: Callback | None = None) -> None:
        """As AsyncConsumer.commit_async; the callback is called in the thread that polls."""
        self._run(self._commit_async(offsets, callback))

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """As AsyncConsumer.committed."""
        return self._run(self._core.committed(partitions))

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
        try:
            if self._core.has_group:
                self._leave("close")
        finally:
            self._run(self._core.release())

    def _wait(self, timeout_ms: int) -> None:
        """Until there is something to take; the calls that the group asks for are made here, in this thread."""
        deadline = self._run(self._core.deadline(timeout_ms))
        while call := self._run(self._core.next_call(deadline)):
            call.run_here()

    def _leave(self, reason: str) -> None:
        leaving = self._run(self._core.begin_to_leave(reason))
        failures: list[Exception] = []
        try:
            while call := self._run(self._core.next_call_of(leaving)):
                try:
                    call.run_here()
                except Exception as error:  # noqa: BLE001 - the group waits for the calls that follow
                    failures.append(error)
        finally:
            self._run(self._core.end_leaving(leaving))
        if failures:
            raise failures[0]

    async def _commit_async(self, offsets: Offsets | None, callback: Callback | None) -> None:
        self._core.commit_async(offsets, callback)
