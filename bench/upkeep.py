"""The jobs that check, replay and delete:  python -m bench.upkeep [--help]

    isr_audit       reads --megabytes of logs, in --partitions partitions: every batch's CRC, order and index entries
    offset_replay   reads --commits commits of --keys keys into its two Delta tables; then again, with nothing new
    retention       deletes the closed segments of --many partitions with --segments segments each

Times are those of the whole run, from the plan to the report in Delta; the session is warm. The second replay shows
what a run takes without work.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.archive import TIMEOUT_S, rows
from bench.harness import broker_process
from bench.offsets_load import write_commits
from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Producer
from sparklog.jobs import isr_audit, offset_replay, retention
from sparklog.jobs.job import Job, JobContext, run_job
from sparklog.jobs.options import parse_options
from sparklog.jobs.session import open_session

RECORD_BYTES = 1_000
STEP = 10_000
COMMITS_IN_BATCH = 10


def seconds_of(job: Job, context: JobContext, **options: Any) -> float:
    """Run the job and return its seconds. Raises RuntimeError if it has findings."""
    begun = time.perf_counter()
    run = run_job(job, context, parse_options(job, options))
    seconds = time.perf_counter() - begun
    if run.status:
        raise RuntimeError(f"{job.name}: {run.rows.collect()}")
    return seconds


def fill(bootstrap: str, topic: str, partitions: int, megabytes: int) -> None:
    """Create the topic, and produce that much to it, the same to each partition."""
    with Admin(bootstrap_servers=bootstrap) as admin, Producer(bootstrap_servers=bootstrap) as producer:
        admin.create_topic(topic, partitions=partitions, configs={"segment.bytes": str(16 << 20)})
        table = rows(STEP, RECORD_BYTES)
        for number in range(megabytes * 1_000_000 // (STEP * RECORD_BYTES)):
            producer.send_table(topic, table, partition=number % partitions).result(TIMEOUT_S)


def measure_audit(spark: Any, folder: str, partitions: int, megabytes: int) -> str:
    """Audit a topic of a running broker; return a line about it."""
    with broker_process() as broker:
        context = JobContext(spark=spark, reports=folder, client={"bootstrap_servers": broker.bootstrap})
        fill(broker.bootstrap, "warm", 1, 10)
        seconds_of(isr_audit.JOB, context, topics=["warm"])
        fill(broker.bootstrap, "audited", partitions, megabytes)
        seconds = seconds_of(isr_audit.JOB, context, topics=["audited"])
    return f"isr_audit      {megabytes:,} MB in {seconds:.1f} s: {megabytes / seconds:,.0f} MB/s"


def measure_replay(spark: Any, folder: str, count: int, keys: int) -> str:
    """Replay a log directory's offsets topic twice; return a line about it."""
    for name, commits, of_keys in (("warm", 10_000, 100), ("replayed", count, keys)):
        path = Path(folder, name)
        path.mkdir()
        write_commits(path, commits, of_keys, COMMITS_IN_BATCH).close()
        context = JobContext(spark=spark, reports=f"{folder}/{name}-tables", client={})
        first, again = (seconds_of(offset_replay.JOB, context, path=str(path)) for _ in range(2))
    return (
        f"offset_replay  {count:,} commits of {keys:,} keys in {first:.1f} s: {count / first:,.0f} commits/s; "
        f"with nothing new {again:.1f} s"
    )


def measure_retention(spark: Any, folder: str, partitions: int, segments: int) -> str:
    """Delete old segments of a running broker; return a line about it."""
    with broker_process("log.retention.check.interval.ms=3600000") as broker:
        context = JobContext(spark=spark, reports=folder, client={"bootstrap_servers": broker.bootstrap})
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            for topic, count in (("warm", 1), ("shortened", partitions)):
                configs = {"internal.segment.bytes": "4000", "retention.bytes": "1"}
                admin.create_topic(topic, partitions=count, configs=configs)
                _fill_segments(broker.bootstrap, topic, range(count), segments)
        seconds_of(retention.JOB, context, topics=["warm"])
        seconds = seconds_of(retention.JOB, context, topics=["shortened"])
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            names = [TopicPartition("shortened", each) for each in range(partitions)]
            starts = admin.list_offsets(dict.fromkeys(names, "earliest"))
    if not all(each.offset for each in starts.values()):
        raise RuntimeError("some partitions were not shortened")
    deleted = partitions * (segments - 1)
    return f"retention      {deleted:,} segments of {partitions:,} partitions in {seconds:.1f} s"


def _fill_segments(bootstrap: str, topic: str, partitions: Sequence[int], segments: int) -> None:
    """Produce one batch to each segment of each partition."""
    table = rows(3, RECORD_BYTES)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for _ in range(segments):
            for sent in [producer.send_table(topic, table, partition=each) for each in partitions]:
                sent.result(TIMEOUT_S)


def main() -> None:
    parser = argparse.ArgumentParser(description="Whole runs of the jobs isr_audit, offset_replay and retention.")
    parser.add_argument("--megabytes", type=int, default=2_000, help="of logs to audit")
    parser.add_argument("--partitions", type=int, default=20, help="to audit")
    parser.add_argument("--commits", type=int, default=5_000_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--many", type=int, default=1_000, help="partitions to shorten")
    parser.add_argument("--segments", type=int, default=10, help="of each of them")
    options = parser.parse_args()
    spark = open_session("bench.upkeep", conf={"spark.log.level": "ERROR"})
    with tempfile.TemporaryDirectory(prefix="sparklog-bench-") as folder:
        print(measure_audit(spark, f"{folder}/audit", options.partitions, options.megabytes), flush=True)
        print(measure_replay(spark, folder, options.commits, options.keys), flush=True)
        print(measure_retention(spark, f"{folder}/retention", options.many, options.segments), flush=True)


if __name__ == "__main__":
    main()
