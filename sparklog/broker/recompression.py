"""Compression of produced batches with their topics' codec, in threads, before the append.

Topics with compression.type = producer, the default, need none. Recompression may take hundreds of times a batch's
bytes in memory, so at most AT_ONCE requests run at a time; the others queue in their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from sparklog.base.errors import KafkaError
from sparklog.records.recompression import Compression, recompress

AT_ONCE = 2
"""Requests whose batches are recompressed at a time."""
Batches = bytearray | memoryview


class RecompressionResult(NamedTuple):
    """The recompressed batches; with an error, the original ones."""

    data: Batches
    error: KafkaError | None = None


class RecompressionJob(NamedTuple):
    """The batches of one partition, and the compression of its topic."""

    data: Batches
    compression: Compression
    max_batch_bytes: int

    def run(self) -> RecompressionResult:
        """Return the batches with the topic's codec or, with the error, as they were. Blocks."""
        try:
            return RecompressionResult(recompress(self.data, self.compression, max_batch_bytes=self.max_batch_bytes))
        except KafkaError as error:
            return RecompressionResult(self.data, error)


class Recompressor:
    """Threads that recompress batches. A cancelled call leaves its thread to finish, or never starts one."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE, "sparklog recompression")

    async def run(self, jobs: Mapping[int, RecompressionJob]) -> dict[int, RecompressionResult]:
        """Return the result of each job, by the job's key."""
        do = partial(_run_each, tuple(jobs.values()))
        done = await asyncio.get_running_loop().run_in_executor(self._threads, do)
        return dict(zip(jobs, done, strict=True))


def _run_each(jobs: Sequence[RecompressionJob]) -> list[RecompressionResult]:
    return [job.run() for job in jobs]
