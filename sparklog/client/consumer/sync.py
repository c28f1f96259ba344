"""The consumer for code without an event loop. The caller's thread takes fetched records without the event loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Unpack

from sparklog.base.ids import TopicPartition
from sparklog.client.base import SyncClient, blocking, direct
from sparklog.client.commits import Offsets
from sparklog.client.consumer.committer import Callback
from sparklog.client.consumer.consumed import ConsumerRecord
from sparklog.client.consumer.consumer import AsyncConsumer
from sparklog.client.listeners import check_plain
from sparklog.client.options import ConsumerOptions


class Consumer(SyncClient[AsyncConsumer]):
    """Consumer that reads records from partitions.

        with Consumer(bootstrap_servers="127.0.0.1:9094", group_id="billing") as consumer:
            consumer.subscribe(["orders"])  # or consumer.assign_topic("orders"), without a group
            for record in consumer:
                print(record.offset, record.key, record.value)

    Options are those of ConsumerConfig; raises ConfigError for an invalid one. The methods are those of AsyncConsumer.
    Several threads must not use a consumer at the same time.
    """

    def __init__(self, **options: Unpack[ConsumerOptions]) -> None:
        super().__init__(AsyncConsumer(**options))
        self.config = self._core.config
        self._run(self._core.start())

    assign = direct(AsyncConsumer.assign)
    assign_topic = blocking(AsyncConsumer.assign_topic)

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

    assignment = direct(AsyncConsumer.assignment)
    seek = direct(AsyncConsumer.seek)
    seek_to_beginning = direct(AsyncConsumer.seek_to_beginning)
    seek_to_end = direct(AsyncConsumer.seek_to_end)
    seek_to_timestamp = direct(AsyncConsumer.seek_to_timestamp)
    seek_to_committed = direct(AsyncConsumer.seek_to_committed)
    pause = direct(AsyncConsumer.pause)
    resume = direct(AsyncConsumer.resume)
    paused = direct(AsyncConsumer.paused)

    def position(self, partition: TopicPartition) -> int:
        """As AsyncConsumer.position."""
        known = self._core.known_position(partition)
        return self._run(self._core.position(partition)) if known is None else known

    def poll(self, timeout_ms: int = 1_000, max_records: int | None = None) -> list[ConsumerRecord]:
        """As AsyncConsumer.poll."""
        self._wait_for_result(timeout_ms)
        return self._core.take(max_records)

    def poll_arrow(self, timeout_ms: int = 1_000, max_records: int | None = None) -> Any:
        """As AsyncConsumer.poll_arrow."""
        self._wait_for_result(timeout_ms)
        return self._core.take_arrow(max_records)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Yield records as they come, without end."""
        unread = self._core.unread
        while True:
            unread.extend(self.poll())
            while unread:
                yield unread.popleft()

    commit = blocking(AsyncConsumer.commit)
    group_metadata = direct(AsyncConsumer.group_metadata)

    def commit_async(self, offsets: Offsets | None = None, callback: Callback | None = None) -> None:
        """As AsyncConsumer.commit_async; the callback is called in the thread that polls."""
        self._run(self._commit_async(offsets, callback))

    committed = blocking(AsyncConsumer.committed)
    partitions_for = blocking(AsyncConsumer.partitions_for)
    beginning_offsets = blocking(AsyncConsumer.beginning_offsets)
    end_offsets = blocking(AsyncConsumer.end_offsets)
    offsets_for_times = blocking(AsyncConsumer.offsets_for_times)

    def close(self) -> None:
        """As AsyncConsumer.close."""
        try:
            if self._core.has_group:
                self._leave("close")
        finally:
            self._run(self._core.release())

    def _wait_for_result(self, timeout_ms: int) -> None:
        """Wait for records, unless there are some, and make the group's calls in the caller's thread."""
        if not self._core.needs_poll:
            return
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
