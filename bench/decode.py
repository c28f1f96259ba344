"""Records to Arrow and back, on one core:  python -m bench.decode [--help]

Records of 100 bytes (8 of key, 92 of value, no headers) in batches of 16 KiB, the default of Kafka's producer, and of
1 MiB. Values are JSON that compresses 3 to 5 : 1. Everything runs in one thread, CRC check included. A figure is the
best of several runs, in that thread's CPU time, which is the time it would take alone on the machine. Bytes are those
of the uncompressed batches. Lines:

    all columns     offset, timestamp, timestampType, key, value, headers
    keys only       offset, key
    offsets only    offset: batches without gaps are counted, not read
    encode          key, value and timestamp columns to batches

With --headers N each record also has N headers. The last lines are the cost of a batch of one record and, with
--segment, the time of a new process to its first record, with the kernels compiled before.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from sparklog.records.arrow import COLUMNS, HEADERS_TYPE, decode, encode_all, warm_up
from sparklog.records.batch import Codec

BASE_TIMESTAMP_MS = 1_700_000_000_000
BATCH_SIZES = (16 * 1024, 1024 * 1024)
CARRIERS = ("UA", "AA", "B6", "DL", "EV", "MQ", "US", "WN")
FIRST_RECORD = """
import time
began = time.thread_time()
from sparklog.records.arrow import decode
decode(open({path!r}, "rb").read())
print(time.thread_time() - began)
"""


def rows(count: int, headers: int) -> pa.RecordBatch:
    """Return records of 100 bytes and their headers, the same in every run."""
    rng = random.Random(1)
    values = [
        (
            f'{{"id":{i:08d},"carrier":"{rng.choice(CARRIERS)}","tail":"N{rng.randrange(100_000):05d}",'
            f'"delay":{rng.randrange(-20, 300):4d},"origin":"JFK","distance":{rng.randrange(5000):4d}}}'
        ).encode().ljust(92)
        for i in range(count)
    ]  # fmt: skip
    columns = {
        "key": pa.array([b"%08d" % rng.randrange(count) for _ in range(count)], pa.binary()),
        "value": pa.array(values, pa.binary()),
        "timestamp": pa.array(range(BASE_TIMESTAMP_MS, BASE_TIMESTAMP_MS + count), pa.int64()),
    }
    if headers:
        entry = [{"key": f"header-{i}", "value": b"value"} for i in range(headers)]
        columns["headers"] = pa.array([entry] * count, HEADERS_TYPE)
    return pa.RecordBatch.from_pydict(columns)


def best_seconds(work: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        began = time.thread_time()
        work()
        times.append(time.thread_time() - began)
    return min(times)


def report(name: str, *, count: int, size_bytes: int, seconds: float, batches: int) -> None:
    print(
        f"{name:<34} {count / seconds / 1e6:>8.1f} M records/s {size_bytes / seconds / 1e6:>9,.0f} MB/s"
        f" {seconds / batches * 1e6:>9.1f} us/batch",
        flush=True,
    )


def measure(table: pa.RecordBatch, codec: Codec, batch_bytes: int, repeats: int) -> None:
    """Print the four lines of one codec and batch size."""

    def encode() -> list[bytearray]:
        return encode_all(table, codec=codec, max_batch_bytes=batch_bytes, default_timestamp_ms=0)

    batches = encode()
    data = b"".join(batches)
    plain = sum(map(len, encode_all(table, max_batch_bytes=batch_bytes, default_timestamp_ms=0)))
    name = f"{codec.name.lower()}, {batch_bytes // 1024} KiB"
    work: list[tuple[str, Callable[[], Any]]] = [
        ("all columns", lambda: decode(data, columns=COLUMNS)),
        ("keys only", lambda: decode(data, columns=("offset", "key"))),
        ("offsets only", lambda: decode(data, columns=("offset",))),
        ("encode", encode),
    ]
    print(f"-- {name}: {len(batches)} batches, {plain / len(data):.1f} : 1")
    for label, call in work:
        seconds = best_seconds(call, repeats)
        report(f"{name}, {label}", count=table.num_rows, size_bytes=plain, seconds=seconds, batches=len(batches))


def measure_small_batches(count: int, repeats: int) -> None:
    table = rows(count, 0)
    batches = encode_all(table, max_batch_bytes=0, default_timestamp_ms=0)
    data = b"".join(batches)
    seconds = best_seconds(lambda: decode(data), repeats)
    report(
        "one record per batch, all columns", count=count, size_bytes=len(data), seconds=seconds, batches=len(batches)
    )
    seconds = best_seconds(lambda: decode(batches[0]), 100)
    print(f"one call, one batch, one record    {seconds * 1e6:.0f} us")


def measure_first_record(path: str, repeats: int) -> None:
    program = FIRST_RECORD.format(path=path)
    seconds = [
        float(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
        for _ in range(repeats)
    ]
    print(f"first record of a new process      {min(seconds):.2f} s, imports included")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--headers", type=int, default=0, help="headers of each record")
    parser.add_argument("--codec", choices=[codec.name.lower() for codec in Codec], action="append")
    parser.add_argument("--segment", help="a .log file to measure a new process's first record with")
    arguments = parser.parse_args()
    warm_up()
    table = rows(arguments.records, arguments.headers)
    chosen = [Codec[name.upper()] for name in arguments.codec or []] or list(Codec)
    for codec in chosen:
        for batch_bytes in BATCH_SIZES:
            measure(table, codec, batch_bytes, arguments.repeats)
    measure_small_batches(20_000, arguments.repeats)
    if arguments.segment:
        measure_first_record(arguments.segment, arguments.repeats)


if __name__ == "__main__":
    main()
