"""A consumer group that reads along: whatever happens to brokers, it comes to see each record that was acknowledged."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from sparklog.client import Consumer
from support.clients.writers import REQUEST_TIMEOUT_MS, TOPIC, Writing
from support.patience import PATIENCE_S, wait_until
from support.processes.cluster import ClusterProcesses


class GroupReader:
    """One member, from the beginning of a `with` block to its end; it commits as it goes."""

    GROUP = "readers"

    def __init__(self, cluster: ClusterProcesses) -> None:
        self.seen: set[tuple[int, int]] = set()
        self.failures: list[str] = []
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, name="group reader")

    def __enter__(self) -> GroupReader:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), f"the group's member does not end\n{self._cluster.logs}"

    def wait_for_progress(self) -> None:
        """Until it has read something new, twice: what was under way does not count."""
        for _ in range(2):
            before = len(self.seen)
            self._wait(lambda before=before: len(self.seen) > before, "the group reads something new")

    def check(self, writing: Writing) -> None:
        """Wait until it has seen all that was acknowledged."""
        told = {
            (partition, offset)
            for writer in writing.writers
            for partition, numbers in writer.acknowledged.items()
            for offset in numbers.values()
            if offset is not None
        }
        self._wait(lambda: told <= self.seen, "the group has seen all records that were acknowledged")

    def _wait(self, is_true: Callable[[], bool], what: str) -> None:
        def is_true_or_over() -> bool:
            assert not self.failures, f"{self.failures}\n{self._cluster.logs}"
            return is_true()

        wait_until(is_true_or_over, what, tell=lambda: self._cluster.logs)

    def _read(self) -> None:
        try:
            with Consumer(
                bootstrap_servers=self._cluster.grpc,
                group_id=self.GROUP,
                auto_offset_reset="earliest",
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                auto_commit_interval_ms=200,
            ) as consumer:
                consumer.subscribe([TOPIC])
                while not self._stop.is_set():
                    self.seen |= {(record.partition, record.offset) for record in consumer.poll(100)}
        except Exception as error:  # noqa: BLE001 - a thread of a test says what has gone wrong
            self.failures.append(repr(error))
