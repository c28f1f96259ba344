"""Conversion between batches and Arrow columns, also before the kernels are compiled.

With an empty cache, as after an install, Numba compiles for seconds. The first use starts the compilation in a thread.
Until its end, small tables and small batches are converted record by record (`records/plain.py`). Larger ones wait,
because that conversion would take too long and too much memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pyarrow as pa

from sparklog.base.fs import Buffer
from sparklog.records import arrow, plain
from sparklog.records.aborted import AbortedRanges
from sparklog.records.batch import Codec
from sparklog.records.compression import ExceedsLimit

SMALL_BYTES = 1 << 20
"""Maximum bytes of a small table, and of a small batch after decompression."""
SMALL_ROWS = plain.ROWS_TOGETHER
Encode = Callable[..., list[bytearray]]
COMPILER = "sparklog kernels"
"""The name of the thread."""


class KernelCompiler:
    """Compiles the kernels in a thread, once."""

    def __init__(self) -> None:
        self._has_begun = threading.Lock()
        """Taken by the call that starts the thread."""
        self._has_ended = threading.Event()

    def is_done(self) -> bool:
        """Return whether the kernels are compiled; the first call starts the compilation."""
        if not self._has_ended.is_set() and self._has_begun.acquire(blocking=False):
            threading.Thread(target=self._compile, name=COMPILER).start()
        return self._has_ended.is_set()

    def wait(self) -> None:
        """Wait for the end of the compilation that `is_done` has started."""
        self._has_ended.wait()

    def _compile(self) -> None:
        try:
            arrow.warm_up()
        finally:
            self._has_ended.set()  # also after a failure: a call of a kernel then raises its error


_compiler = KernelCompiler()


def encode_all(
    table: pa.Table, *, codec: Codec, level: int | None, default_timestamp_ms: int, max_batch_bytes: int
) -> list[bytearray]:
    """Return all rows of a valid table as batches; see `arrow.encode_all`."""
    if _compiler.is_done() or table.num_rows > SMALL_ROWS or table.nbytes > SMALL_BYTES:
        _compiler.wait()
        encode: Encode = arrow.encode_all
    else:
        encode = plain.encode_all
    return encode(
        table, codec=codec, level=level, default_timestamp_ms=default_timestamp_ms, max_batch_bytes=max_batch_bytes
    )


def decode_batches(
    data: Buffer, *, offset_from: int, limit_bytes: int, aborted: AbortedRanges
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the batches from `offset_from` on; see `arrow.decode_batches`."""
    if not _compiler.is_done():
        limit = min(SMALL_BYTES, limit_bytes)
        try:
            for batch in plain.decode_batches(data, offset_from=offset_from, limit_bytes=limit, aborted=aborted):
                yield batch
                offset_from = batch.column("offset")[-1].as_py() + 1
            return
        except ExceedsLimit:
            _compiler.wait()
    yield from arrow.decode_batches(data, offset_from=offset_from, limit_bytes=limit_bytes, aborted=aborted)
