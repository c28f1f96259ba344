"""The key map and the rewriting of compaction, on one core:  python -m bench.compaction_kernels [--help]

Keys of 10 bytes are put in a map, then looked up; once with few distinct keys, which stay in the processor's caches,
and once with as many as there are records. Then records of 100 bytes, in batches of 16 KiB and 1 MiB of each codec, are
rewritten: with every record kept (batches stay as they are), every second one, and one in a hundred.

Everything runs in one thread. A figure is the best of several runs, in that thread's CPU time, which is the time it
would take alone on the machine. Bytes are those of the uncompressed batches. `first` is a map that has to grow, and
whose memory the system has yet to provide; `again` is a map that has its size.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from time import thread_time
from typing import Any

import numpy as np
import pyarrow as pa

from bench.decode import BASE_TIMESTAMP_MS, best_seconds, report, rows
from sparklog.records.arrow import encode, encode_all
from sparklog.records.batch import Codec
from sparklog.records.key_map import KeyMap
from sparklog.records.rewriting import Rewriter

KEY_BYTES = 10
CHUNK = 1_000_000
BATCH_SIZES = (16 * 1024, 1024 * 1024)
RULES: dict[str, Any] = {"now_ms": 2 * BASE_TIMESTAMP_MS, "delete_retention_ms": 86_400_000}


def keys_of(numbers: np.ndarray) -> pa.Array:
    """Return each number's ten decimal digits."""
    digits = np.empty((len(numbers), KEY_BYTES), np.uint8)
    rest = numbers.copy()
    for place in reversed(range(KEY_BYTES)):
        digits[:, place] = ord("0") + rest % 10
        rest //= 10
    starts = np.arange(0, KEY_BYTES * len(numbers) + 1, KEY_BYTES, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(numbers), [None, pa.py_buffer(starts), pa.py_buffer(digits.ravel())])


def measure_map(count: int, distinct: int, repeats: int) -> None:
    numbers = np.random.default_rng(1).permutation(count) % distinct
    chunks = [
        (keys_of(numbers[start : start + CHUNK]), np.arange(start, min(start + CHUNK, count)))
        for start in range(0, count, CHUNK)
    ]
    maps: list[KeyMap] = []

    def put() -> None:
        for keys, offsets in chunks:
            assert maps[-1].put(keys, offsets)

    def first() -> None:
        maps[:] = [KeyMap(64 * distinct + (1 << 24), os.urandom(16))]
        put()

    def ask() -> None:
        assert sum(int(maps[-1].survives(keys, offsets).sum()) for keys, offsets in chunks) == distinct

    def newest() -> None:
        assert len(maps[-1].newest_offsets()) == distinct

    works: list[tuple[str, Callable[[], Any]]] = [
        ("put, first", first),
        ("put, again", put),
        ("survives", ask),
        ("newest offsets", newest),
    ]
    for name, work in works:
        seconds = best_seconds(work, repeats)
        print(f"{name:<16} {distinct:>10,} distinct {count / seconds / 1e6:>8.1f} M keys/s", flush=True)
    print(f"{'memory':<16} {distinct:>10,} distinct {maps[-1].nbytes / len(maps[-1]):>8.0f} bytes/key", flush=True)


def measure_rewriting(table: pa.RecordBatch, codec: Codec, batch_size: int, repeats: int) -> None:
    options = {"default_timestamp_ms": BASE_TIMESTAMP_MS, "max_batch_bytes": batch_size}
    batches = encode_all(table, codec=codec, **options)
    size_bytes = sum(map(len, encode_all(table, **options)))
    count = table.num_rows
    data = b"".join(batches)
    for name, step in (("all kept", 1), ("half kept", 2), ("1 % kept", 100)):
        kept = np.arange(0, count, step)
        seconds = best_seconds(lambda kept=kept: Rewriter(**RULES).rewrite(data, kept), repeats)
        title = f"{name}, {codec.name.lower()}, {batch_size // 1024} KiB"
        report(title, count=count, size_bytes=size_bytes, seconds=seconds, batches=len(batches))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=10_000_000, help="records put in the map")
    parser.add_argument("--records", type=int, default=300_000, help="records rewritten")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    began = thread_time()
    Rewriter(**RULES).rewrite(encode(rows(10, 0), default_timestamp_ms=0), np.arange(5))
    KeyMap(1 << 20, bytes(16)).put(keys_of(np.arange(3)), np.arange(3))
    print(f"{'kernels loaded or compiled':<34} {thread_time() - began:>8.2f} s")
    for distinct in (arguments.keys // 50, arguments.keys):
        measure_map(arguments.keys, distinct, arguments.repeats)
    table = rows(arguments.records, 0)
    for codec in Codec:
        for batch_size in BATCH_SIZES:
            measure_rewriting(table, codec, batch_size, arguments.repeats)


if __name__ == "__main__":
    main()
