"""The archive job: throughput of a backlog, and the lag at a steady rate:  python -m bench.archive [--help]

    backlog   one run that archives --records records at once: megabytes of the log by the time of the whole run, from
              the plan to the report; the session is warm
    steady    --runs runs, one every --every seconds, while records arrive at --rate per second on each of the
              partitions: how old the oldest record was when it was archived, the time of a run, and the files of the
              day, with and without those that were merged

Records have --size random bytes, which no codec makes smaller, in --partitions partitions.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from bench.harness import broker_process
from sparklog.client import Admin, Producer
from sparklog.jobs.archive import JOB
from sparklog.jobs.job import JobContext, Run, run_job
from sparklog.jobs.options import parse_options
from sparklog.jobs.session import open_session

STEP = 10_000
TIMEOUT_S = 120
TICK_S = 0.1


def rows(count: int, size: int) -> pa.Table:
    """Return records with random values."""
    data = np.random.default_rng(count).bytes(count * size)
    offsets = np.arange(count + 1, dtype=np.int32) * size
    return pa.table({"value": pa.Array.from_buffers(pa.binary(), count, [None, *map(pa.py_buffer, (offsets, data))])})


def create(bootstrap: str, folder: str, partitions: int) -> tuple[str, str]:
    """Create a topic with an archive; return its name and the archive's folder."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    uri = str(Path(folder, name))
    configs = {"retention.archive": uri, "message.timestamp.type": "LogAppendTime"}
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(name, partitions=partitions, configs=configs)
    return name, uri


def archive(spark: Any, bootstrap: str, folder: str, topic: str) -> tuple[Run, float]:
    """Run the job once; return the run and its seconds."""
    context = JobContext(spark=spark, reports=f"{folder}/reports", client={"bootstrap_servers": bootstrap})
    begun = time.perf_counter()
    run = run_job(JOB, context, parse_options(JOB, {"topics": [topic]}))
    return run, time.perf_counter() - begun


def measure_backlog(spark: Any, bootstrap: str, folder: str, count: int, size: int, partitions: int) -> str:
    """Archive a backlog; return a line about it."""
    topic, _ = create(bootstrap, folder, partitions)
    table = rows(STEP, size)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(count // STEP):
            producer.send_table(topic, table, partition=number % partitions).result(TIMEOUT_S)
    run, seconds = archive(spark, bootstrap, folder, topic)
    done = run.rows.collect()
    assert sum(row.archived_records for row in done) == count // STEP * STEP
    megabytes = count * size / 1e6
    return f"backlog  {megabytes:,.0f} MB in {seconds:.1f} s: {megabytes / seconds:,.0f} MB/s"


def measure_steady(
    spark: Any, bootstrap: str, folder: str, rate: int, size: int, partitions: int, every_s: float, runs: int
) -> str:
    """Archive at a steady rate; return a line about it."""
    topic, uri = create(bootstrap, folder, partitions)
    stop = threading.Event()
    table = rows(max(1, round(rate * TICK_S)), size)

    def produce() -> None:
        with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
            while not stop.wait(TICK_S):
                for partition in range(partitions):
                    producer.send_table(topic, table, partition=partition).result(TIMEOUT_S)

    thread = threading.Thread(target=produce)
    thread.start()
    oldest_ms, took_s, merged = [], [], 0
    try:
        for number in range(runs + 1):
            begun = time.monotonic()
            run, seconds = archive(spark, bootstrap, folder, topic)
            if number:  # the first run has no run before it
                done = run.rows.collect()
                oldest_ms.append(max(row.lag_before_ms for row in done) + seconds * 1000)
                took_s.append(seconds)
                merged += sum(row.merged_files for row in done)
            time.sleep(max(0.0, every_s - (time.monotonic() - begun)))
    finally:
        stop.set()
        thread.join()
    return (
        f"steady   {rate * size * partitions / 1e6:.1f} MB/s in {partitions} partitions, a run every {every_s:g} s: "
        f"a record is at most {max(oldest_ms) / 1000:.1f} s old when it is archived (target: 60 s); a run takes "
        f"{np.median(took_s):.1f} s (median), {max(took_s):.1f} s (most); {len(DeltaTable(uri).file_uris())} files, "
        f"{merged} were merged"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Throughput and lag of the archive job.")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=1000, help="bytes of a value")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rate", type=int, default=1000, help="records per second and partition")
    parser.add_argument("--every", type=float, default=30, help="seconds from run to run")
    parser.add_argument("--runs", type=int, default=20)
    given = parser.parse_args()
    spark = open_session("bench.archive", conf={"spark.log.level": "ERROR"})
    with broker_process() as broker, tempfile.TemporaryDirectory() as folder:
        ours = (spark, broker.bootstrap, folder)
        measure_backlog(*ours, STEP, given.size, given.partitions)  # warms up
        print(measure_backlog(*ours, given.records, given.size, given.partitions), flush=True)
        print(measure_steady(*ours, given.rate, given.size, given.partitions, given.every, given.runs), flush=True)


if __name__ == "__main__":
    main()
