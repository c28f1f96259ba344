"""A year of flights through sparklog and Spark:  make demo, or python examples/flights.py [FOLDER]

Starts a broker, loads the departures from New York in 2013 over gRPC, reads them in Spark, streams them into a Delta
table, compacts the topic, and compares the results with the CSV file. All output is in FOLDER (./demo-output), which
the demo empties first. It stops all its processes, also after Ctrl-C. Exit status 1: a result differs from the file.
"""

from __future__ import annotations

import shutil
import signal
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from departures import load
from pipeline import Topic, departures_by_carrier, newest_values
from steps import Step, must_equal, say

from broker import running_broker
from sparklog.client import Admin, Producer
from sparklog.jobs import JobContext, parse_options, run_job
from sparklog.jobs.compaction import JOB as COMPACTION
from sparklog.spark import local_session

TOPIC = "departures"
PARTITIONS = 4
CONFIGS = {
    "segment.bytes": str(1 << 20),  # small, for many segments
    "segment.ms": str(365 * 24 * 3_600_000),  # by default a segment spans at most a week of record timestamps
    "retention.ms": "-1",  # by default, records from 2013 would be too old to keep
}
ROWS_AT_ONCE = 10_000
SEPTEMBER = 27_574  # departures, the last in the file; the demo loads them after the stream's first run
CHRISTMAS = datetime(2013, 12, 24, 5, tzinfo=UTC)  # midnight in New York


def main(folder: Path) -> None:
    output = empty_folder(folder)
    with Step("Read flights.csv") as step:
        departures = load()
        step.found(f"{departures.num_rows:,} departures, {departures['key'].null_count:,} without a tail number")
        step.found(f"{departures['value'].null_count:,} cancelled: records without a value (tombstones)")
    first = departures.num_rows - SEPTEMBER
    early, september = departures.slice(0, first), departures.slice(first)
    with running_broker(output / "log", output / "broker.log") as bootstrap:
        produce_first(bootstrap, early)
        with Step("Start Spark"):
            spark = local_session("flights", log_file=output / "spark.log")
        topic = Topic(spark, bootstrap, TOPIC)
        try:
            query_in_batch(topic, early)
            stream_twice(topic, output, bootstrap, early, september)
            compare_newest(topic, output / "delta", departures)
            compact(topic, output, bootstrap, departures)
        finally:
            spark.stop()
    name_what_was_written(output)


def empty_folder(folder: Path) -> Path:
    """Return an empty folder. Ends the demo for a non-empty folder of another origin than an earlier run."""
    mark = folder / "broker.log"
    if folder.exists() and any(folder.iterdir()) and not mark.exists():
        raise SystemExit(f"{folder} holds something else than an earlier demo's output: name another folder")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def produce_first(bootstrap: str, early: pa.Table) -> None:
    with Step(f"Create a topic of {PARTITIONS} partitions, and load all months but September over gRPC") as step:
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS, configs=CONFIGS)
        produce(bootstrap, early, step)
        with Admin(bootstrap_servers=bootstrap) as admin:
            [topic] = admin.describe_topics([TOPIC])
        step.found(
            f"{topic.size_bytes / 1e6:.1f} MB in {', '.join(str(p.high_watermark) for p in topic.partitions)} records"
        )


def produce(bootstrap: str, records: pa.Table, step: Step) -> None:
    """Send the records, ROWS_AT_ONCE at a time."""
    with Producer(bootstrap_servers=bootstrap) as producer, step.progress(records.num_rows) as advance:
        for first in range(0, records.num_rows, ROWS_AT_ONCE):
            rows = records.slice(first, ROWS_AT_ONCE)
            producer.send_table(TOPIC, rows).result()
            advance(rows.num_rows)
    step.found(f"{records.num_rows:,} records, {records.num_rows / step.seconds:,.0f} a second")


def query_in_batch(topic: Topic, records: pa.Table) -> None:
    with Step("Count departures by carrier, in batch") as step:
        counts = departures_by_carrier(topic.batch())
        step.found(", ".join(f"{carrier} {count:,}" for carrier, count in counts.items()))
        step.found(must_equal("the counts", counts, carriers_in(records)))
    with Step(f"Read what was scheduled from {CHRISTMAS:%d %B} on") as step:
        count = topic.since(CHRISTMAS).count()
        step.found(f"{count:,} departures; opened {topic.opened_since(CHRISTMAS).summary}")
        expected = pc.sum(
            pc.greater_equal(records["timestamp"], pa.scalar(CHRISTMAS, records["timestamp"].type))
        ).as_py()
        step.found(must_equal("their number", count, expected))


def stream_twice(topic: Topic, output: Path, bootstrap: str, early: pa.Table, september: pa.Table) -> None:
    with Step("Stream the topic into a Delta table: first run") as step:
        step.found(must_equal("the number of new records", step.rows(copy(topic, output)), early.num_rows))
    with Step("Load September") as step:
        produce(bootstrap, september, step)
    with Step("Stream again: only what has come since") as step:
        step.found(must_equal("the number of new records", step.rows(copy(topic, output)), september.num_rows))


def copy(topic: Topic, output: Path) -> int:
    return topic.copy_to_delta(output / "delta", output / "checkpoint")


def compare_newest(topic: Topic, table: Path, departures: pa.Table) -> None:
    with Step("Take the newest record of every plane from the Delta table") as step:
        newest = newest_values(topic.spark.read.format("delta").load(str(table)))
        cancelled = sum(value is None for value in newest.values())
        step.found(f"{len(newest):,} planes, the last flight of {cancelled:,} of them cancelled")
        step.found(must_equal("the newest values", newest, newest_in(departures)))


def compact(topic: Topic, output: Path, bootstrap: str, departures: pa.Table) -> None:
    with Step("Compact the topic: keep the newest record of every plane") as step:
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.alter_configs(TOPIC, set={"cleanup.policy": "compact"})
        client = {"bootstrap_servers": bootstrap}
        context = JobContext(spark=topic.spark, reports=str(output / "reports"), client=client)
        run = run_job(COMPACTION, context, parse_options(COMPACTION, {"topics": [TOPIC]}))
        for row in run.rows.orderBy("partition").collect():
            step.found(
                f"partition {row.partition}: {row.outcome}, {row.records_before:,} records in {row.segments_before} "
                f"segments became {row.records_after:,} in {row.segments_after}"
            )
        step.found(must_equal("the newest values", newest_values(topic.batch()), newest_in(departures)))


def carriers_in(records: pa.Table) -> dict[str, int]:
    return Counter(headers[0]["value"].decode() for headers in records["headers"].to_pylist())


def newest_in(records: pa.Table) -> dict[str, str | None]:
    rows = zip(records["key"].to_pylist(), records["value"].to_pylist(), strict=True)
    return {key.decode(): value and value.decode() for key, value in rows if key is not None}


def name_what_was_written(output: Path) -> None:
    say(
        f"Written to {output}:",
        f"  log/         the broker's log directory; try: sparklog dump {output}/log/{TOPIC}-0/{0:020d}.log",
        "  reports/     Delta tables that say what compaction did, and when: reports/compaction, reports/runs",
        "  delta/       the Delta table, and checkpoint/ of the stream that fills it",
        "  broker.log, spark.log",
    )


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stop as cleanly as after Ctrl-C
    try:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output").absolute())
    except KeyboardInterrupt:
        say("stopped")
        raise SystemExit(130) from None
