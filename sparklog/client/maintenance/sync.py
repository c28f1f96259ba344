"""The maintenance client for code without an event loop: in a Spark driver and in tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Unpack

from sparklog.base.ids import TopicPartition
from sparklog.client.base import SyncClient, blocking
from sparklog.client.maintenance.maintenance import AsyncMaintenance, Lease
from sparklog.client.maintenance.uploads import Upload
from sparklog.client.options import AdminOptions
from sparklog.log.description import LogDescription, SegmentDescription


class Maintenance(SyncClient[AsyncMaintenance]):
    """Client for the maintenance of logs.

        with Maintenance(bootstrap_servers="127.0.0.1:9094") as maintenance:
            logs = maintenance.describe_logs()

    Options are those of AdminConfig; raises ConfigError for an invalid one. The methods are those of AsyncMaintenance;
    chunks are any iterable of bytes, read in the caller's thread.
    """

    def __init__(self, **options: Unpack[AdminOptions]) -> None:
        super().__init__(AsyncMaintenance(**options))
        self.config = self._core.config

    describe_logs = blocking(AsyncMaintenance.describe_logs)
    describe_replicas = blocking(AsyncMaintenance.describe_replicas)

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

    begin_replace = blocking(AsyncMaintenance.begin_replace)

    def upload(self, lease: Lease, chunks: Iterable[bytes]) -> int:
        """As AsyncMaintenance.upload."""
        return self._send(self._run(self._core.open_upload(lease)), chunks)

    commit_replace = blocking(AsyncMaintenance.commit_replace)
    abort_replace = blocking(AsyncMaintenance.abort_replace)
    set_cleaned_offset = blocking(AsyncMaintenance.set_cleaned_offset)

    def install_snapshot(
        self, partition: TopicPartition, leader_epoch: int, end_offset: int, chunks: Iterable[bytes]
    ) -> int:
        """As AsyncMaintenance.install_snapshot."""
        return self._send(self._run(self._core.open_snapshot(partition, leader_epoch, end_offset)), chunks)

    note_job_run = blocking(AsyncMaintenance.note_job_run)
    close = blocking(AsyncMaintenance.close)

    def _send(self, upload: Upload, chunks: Iterable[bytes]) -> int:
        async def close() -> None:
            upload.close()

        try:
            for chunk in chunks:
                self._run(upload.write(chunk))
            return self._run(upload.finish())
        finally:
            self._run(close())
