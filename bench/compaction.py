"""Compaction on Spark, beside Apache Kafka's cleaner on the same records:  python -m bench.compaction [--help]

    task      the job's report for the partition: both passes and the swap, by the size of the log before
    job       the same megabytes by the time of the whole run: plan, Spark job, report in Delta; the session is warm
    kafka     the same passes, as Apache Kafka's cleaner reports them in its own log. Where its buffer does not hold all
              keys (log.cleaner.dedupe.buffer.size), it cleans the log in several rounds: the megabytes of the log by
              the time of all of them

With --kafka HOST:PORT and --kafka-log FILE (the file to which that broker logs) of an Apache Kafka on this machine,
started with log.cleaner.backoff.ms=1000, the same client produces the same records there, to a topic that is compacted
only after all have arrived. A run on a small topic warms up each of the two.

--memory measures the memory of the largest case instead: the peak of the Spark driver's JVM and of the Python workers
for --records records with --keys keys, under --memory-per-task MiB.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from bench.harness import broker_process
from sparklog.jobs.compaction import JOB
from sparklog.jobs.job import JobContext, run_job
from sparklog.jobs.options import parse_options
from sparklog.jobs.session import open_session

TIMEOUT_S = 600
SETTLED_S = 8
"""Pause after which the cleaner is done: longer than its backoff."""
MIB = 1 << 20
CLEANED = re.compile(
    r"cleaned log (?P<log>\S+) .*?\n\s*[\d.,]+ MB of log processed in (?P<seconds>[\d.,]+) seconds", re.S
)
VALUES = 1000
STEP = 100_000


class Load(NamedTuple):
    """The records to produce."""

    records: int
    keys: int
    size: int
    codec: str

    @property
    def segment_bytes(self) -> str:
        """The segment size that leaves only a few of the records outside closed segments, for any number of records."""
        return str(min(64 * MIB, max(MIB, self.records * self.size // 4)))


def fill(bootstrap: str, topic: str, load: Load) -> None:
    """Produce the records: every key once, in any order, then keys at random; values are random bytes."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": load.codec,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
            "linger.ms": 10,
        }
    )
    random = np.random.default_rng(load.records)
    values = [random.bytes(load.size) for _ in range(VALUES)]
    keys = np.concatenate([random.permutation(load.keys), random.integers(0, load.keys, load.records)])[: load.records]
    for start in range(0, load.records, STEP):
        for number, key in enumerate(keys[start : start + STEP].tolist()):
            while True:
                try:
                    producer.produce(topic, values[number % VALUES], f"{key:010}", partition=0)
                    break
                except BufferError:
                    producer.poll(0.05)
    if producer.flush(TIMEOUT_S):
        raise RuntimeError("not all records were delivered in time")


@contextmanager
def topic(bootstrap: str, **configs: str) -> Iterator[str]:
    name = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    texts = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([NewTopic(name, 1, 1, config=texts)])[name].result(TIMEOUT_S)
    yield name
    admin.delete_topics([name])[name].result(TIMEOUT_S)


def show(name: str, load: Load, megabytes: float, seconds: float, more: str = "") -> None:
    print(
        f"{name:<9}{load.records:>11,} records {load.keys:>11,} keys {load.codec:<5}"
        f"{megabytes:>9,.1f} MB {seconds:>7.2f} s {megabytes / seconds:>8,.1f} MB/s  {more}",
        flush=True,
    )


def measure_kafka(bootstrap: str, log: Path, load: Load, megabytes: float, *, quiet: bool = False) -> None:
    """Produce, let the cleaner begin, and wait until it has logged its time and begins no further round.

    megabytes: of the log, as it was here
    """
    with topic(bootstrap, cleanup_policy="delete", retention_ms="-1", segment_bytes=load.segment_bytes) as name:
        fill(bootstrap, name, load)
        since = log.stat().st_size
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        for key, value in (("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.01")):
            resource.add_incremental_config(ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET))
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
        deadline = time.monotonic() + TIMEOUT_S
        rounds: list[float] = []
        last = time.monotonic()
        while not rounds or time.monotonic() - last < max(SETTLED_S, 4 * rounds[-1]):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the cleaner was not done with {name} within {TIMEOUT_S} s")
            time.sleep(0.2)
            if (found := _rounds(log, since, f"{name}-0")) != rounds:
                rounds, last = found, time.monotonic()
    if not quiet:
        show("kafka", load, megabytes, sum(rounds), f"{len(rounds)} rounds")


def _rounds(log: Path, since: int, name: str) -> list[float]:
    """Return the seconds of each round of the cleaner on that log."""
    with log.open("rb") as file:
        file.seek(since)
        text = file.read().decode("utf-8", "replace")
    return [float(found["seconds"].replace(",", "")) for found in CLEANED.finditer(text) if found["log"] == name]


def measure(
    spark: Any, grpc: str, kafka: str, reports: str, load: Load, *, memory: int = 256, quiet: bool = False
) -> float:
    """Produce, run the job, and show its report; return the megabytes of the log."""
    with topic(kafka, cleanup_policy="compact", segment_bytes=load.segment_bytes) as name:
        fill(kafka, name, load)
        context = JobContext(spark=spark, reports=reports, client={"bootstrap_servers": grpc})
        options = parse_options(JOB, {"topics": [name], "force": True, "memory_per_task": memory})
        started = time.perf_counter()
        run = run_job(JOB, context, options)
        seconds = time.perf_counter() - started
        row = run.rows.collect()[0]
        if run.status or row.outcome != "compacted":
            raise RuntimeError(str(row))
    megabytes = float(row.bytes_before / 1e6)
    if not quiet:
        more = f"{row.records_after:,} records stay, by {row.how}"
        show("task", load, megabytes, row.seconds, more)
        show("job", load, megabytes, seconds)
    return megabytes


class MemoryWatch:
    """Peak memory of the descendants of a process, by kind, sampled ten times a second."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.most: dict[str, float] = {}
        """MiB: of the JVM, of the largest Python worker, of all Python workers together."""

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.1):
            jvm, workers = [0.0], [0.0]
            for pid in _below(self._pid):
                name, resident = _memory(pid)
                (jvm if name == "java" else workers).append(resident)
            for kind, value in (("JVM", max(jvm)), ("worker", max(workers)), ("workers", sum(workers))):
                self.most[kind] = max(self.most.get(kind, 0.0), value)


def _below(pid: int) -> list[int]:
    """Return all descendants of a process."""
    found, left = [], [pid]
    while left:
        parent = left.pop()
        for tasks in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                children = [int(word) for word in tasks.read_text().split()]
            except OSError:
                continue
            found += children
            left += children
    return found


def _memory(pid: int) -> tuple[str, float]:
    """Return a process's name and resident MiB; an empty name and 0 if it has ended."""
    try:
        fields = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
    except OSError:
        return "", 0.0
    return fields["Name"].strip(), int(fields.get("VmRSS", "0 kB").split()[0]) / 1024


def measure_memory(spark: Any, grpc: str, kafka: str, reports: str, load: Load, memory: int) -> None:
    """Measure as `measure` does, and print the peak memory of the processes below this one."""
    with MemoryWatch(os.getpid()) as watch:
        measure(spark, grpc, kafka, reports, load, memory=memory)
    print("  ".join(f"{kind} {most:,.0f} MiB at most" for kind, most in watch.most.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compaction on Spark, beside Apache Kafka's cleaner.")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--codecs", default="none")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--memory", action="store_true", help="measure memory, without Apache Kafka")
    parser.add_argument("--memory-per-task", type=int, default=256, help="MiB")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="an Apache Kafka on this machine")
    parser.add_argument("--kafka-log", type=Path)
    options = parser.parse_args()
    spark = open_session("bench.compaction", conf={"spark.log.level": "ERROR"})
    loads = [Load(options.records, options.keys, options.size, codec) for codec in options.codecs.split(",")]
    settings = ("listeners=PLAINTEXT://127.0.0.1:0",)
    with broker_process(*settings) as broker, tempfile.TemporaryDirectory() as reports:
        ours = (spark, broker.bootstrap, broker.kafka, reports)
        if options.memory:
            for load in loads:
                measure_memory(*ours, load, options.memory_per_task)
            return
        small = loads[0]._replace(records=options.records // 10 + 1, keys=options.keys // 10 + 1)
        megabytes = measure(*ours, small, quiet=True)
        if options.kafka:
            measure_kafka(options.kafka, options.kafka_log, small, megabytes, quiet=True)
        for load in loads * options.runs:
            megabytes = measure(*ours, load, memory=options.memory_per_task)
            if options.kafka:
                measure_kafka(options.kafka, options.kafka_log, load, megabytes)


if __name__ == "__main__":
    main()
