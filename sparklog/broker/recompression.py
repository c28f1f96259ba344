"""Compression of produced batches with their topics' codec, in threads, before the append.

Batches of topics with compression.type = producer, the default, never come here. A batch may take hundreds of times
its bytes in memory while it is compressed anew, so few requests are worked on at a time; the others wait in the order
in which they came.
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
"""Requests that are compressed anew at a time."""
Batches = bytearray | memoryview


class RecompressionResult(NamedTuple):
    """Batches with the topic's codec, or why there are none."""

    data: Batches
    error: KafkaError | None = None


class RecompressionJob(NamedTuple):
    """The batches of one partition, and what is to become of them."""

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
    """Threads that compress batches anew. A call that is cancelled leaves its thread to finish, or never starts one."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE, "sparklog recompression")

    async def run(self, jobs: Mapping[int, RecompressionJob]) -> dict[int, RecompressionResult]:
        """Return what becomes of each job, by its key."""
        do = partial(_run_each, tuple(jobs.values()))
        done = await asyncio.get_running_loop().run_in_executor(self._threads, do)
        return dict(zip(jobs, done, strict=True))


def _run_each(jobs: Sequence[RecompressionJob]) -> list[RecompressionResult]:
    return [job.run() for job in jobs]
