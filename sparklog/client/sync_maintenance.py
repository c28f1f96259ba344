"""The client of jobs for code without an event loop: in a driver and in tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Unpack

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.client.loop_thread import Blocking
from sparklog.client.maintenance import AsyncMaintenance, Lease
from sparklog.client.options import AdminOptions
from sparklog.client.uploads import Upload
from sparklog.log.description import LogDescription, SegmentDescription


class Maintenance(Blocking):
    """Looks after logs.

        with Maintenance(bootstrap_servers="127.0.0.1:9094") as maintenance:
            logs = maintenance.describe_logs()

    Options are those of AdminConfig. Raises ConfigError for any that is wrong. The methods are those of
    AsyncMaintenance; chunks are any iterable of bytes, read in the caller's thread.
    """

    def __init__(self, **options: Unpack[AdminOptions]) -> None:
        self._core = AsyncMaintenance(**options)
        self.config = self._core.config
        super().__init__()

    def describe_logs(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, LogDescription | KafkaError]:
        """As AsyncMaintenance.describe_logs."""
        return self._run(self._core.describe_logs(partitions))

    def describe_replicas(self) -> list[LogDescription]:
        """As AsyncMaintenance.describe_replicas."""
        return self._run(self._core.describe_replicas())

    def read_segment(
        self,
        log: LogDescription,
        segment: SegmentDescription,
        position: int = 0,
        size: int | None = None,
        file: str = "log",
    ) -> Iterator[bytes]:
        """As AsyncMaintenance.read_segment."""
        pieces = self._core.read_segment(log, segment, position, size, file)

        async def read() -> bytes | None:
            return await anext(pieces, None)

        try:
            while (piece := self._run(read())) is not None:
                yield piece
        finally:
            self._run(pieces.aclose())

    def begin_replace(
        self, log: LogDescription, sources: Sequence[SegmentDescription], holder: str, lease_ms: int = 60_000
    ) -> Lease:
        """As AsyncMaintenance.begin_replace."""
        return self._run(self._core.begin_replace(log, sources, holder, lease_ms))

    def upload(self, lease: Lease, chunks: Iterable[bytes]) -> int:
        """As AsyncMaintenance.upload."""
        return self._send(self._run(self._core.open_upload(lease)), chunks)

    def commit_replace(self, lease: Lease, leader_epoch: int, size_bytes: int, crc32c: int) -> SegmentDescription:
        """As AsyncMaintenance.commit_replace."""
        return self._run(self._core.commit_replace(lease, leader_epoch, size_bytes, crc32c))

    def abort_replace(self, lease: Lease) -> None:
        """As AsyncMaintenance.abort_replace."""
        self._run(self._core.abort_replace(lease))

    def set_cleaned_offset(self, log: LogDescription, offset: int, segments: Sequence[SegmentDescription]) -> None:
        """As AsyncMaintenance.set_cleaned_offset."""
        self._run(self._core.set_cleaned_offset(log, offset, segments))

    def install_snapshot(
        self, partition: TopicPartition, leader_epoch: int, end_offset: int, chunks: Iterable[bytes]
    ) -> int:
        """As AsyncMaintenance.install_snapshot."""
        return self._send(self._run(self._core.open_snapshot(partition, leader_epoch, end_offset)), chunks)

    def note_job_run(self, job: str, run_id: str, **what: Any) -> None:
        """As AsyncMaintenance.note_job_run."""
        self._run(self._core.note_job_run(job, run_id, **what))

    def close(self) -> None:
        """Let go of the connections."""
        self._run(self._core.close())

    def _send(self, upload: Upload, chunks: Iterable[bytes]) -> int:
        async def close() -> None:
            upload.close()

        try:
            for chunk in chunks:
                self._run(upload.write(chunk))
            return self._run(upload.finish())
        finally:
            self._run(close())
