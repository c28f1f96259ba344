"""Writing a stream of Spark to a topic, exactly once and at least once:  python -m bench.sink [--help]

Each trigger has --rows rows of 100 bytes from Spark's source rate-micro-batch, in --tasks tasks. Both guarantees are
run in turns, --rounds times, the first trigger of each run left out; the median of the runs counts, as the same run
differs by a tenth or two from time to time on a machine that is shared:

    rows/s        of all triggers of a run
    trigger       median time of a trigger
    commit        median time of the sink's commit, with its connection: what a trigger has in addition, apart from
                  what its tasks do. With at_least_once there is nothing to commit
    CPU           of the broker, and of everything with Spark and its Python workers, for a trigger: what tells them
                  apart on a machine that does other work too
    seen after    with exactly_once: median time from the answer to a commit until readers of committed records see the
                  batch, measured with a client alone, a batch of one record in each partition
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import redirect_stderr
from pathlib import Path
from statistics import median
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

from bench.harness import AllProcesses, BrokerProcess, broker_process, wait_for_query
from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Consumer, Producer
from sparklog.client.sinks.sinks import BatchWinner, SinkBatchId
from sparklog.client.sinks.sync import SinkClient
from sparklog.spark.session import local_session
from sparklog.spark.source.option_parsing import parse_write_options
from sparklog.spark.source.source import SparklogDataSource
from sparklog.spark.source.write import TopicStreamWriter

LOG_FILE = Path(tempfile.gettempdir()) / "sparklog-bench-sink.log"
GUARANTEES = AT_LEAST_ONCE, EXACTLY_ONCE = "at_least_once", "exactly_once"
VALUE_BYTES = 100
PROGRESS_S = 0.05
TIMES = "commitTimes"
"""Option of the source: the file to which commit times are appended."""


class TimedWriter(TopicStreamWriter):
    """Writer that appends the time of each commit to a file, in seconds."""

    times = ""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        started = time.perf_counter()
        super().commit(messages, batchId)
        with open(self.times, "a") as file:
            print(time.perf_counter() - started, file=file)


class TimedSource(SparklogDataSource):
    """The source sparklog, with a writer that tells the time of its commits."""

    @classmethod
    def name(cls) -> str:
        return "timed"

    def streamWriter(self, schema: StructType, overwrite: bool) -> TimedWriter:  # noqa: N802
        options = {name: value for name, value in self.options.items() if name.lower() != TIMES.lower()}
        writer = TimedWriter(parse_write_options(options), schema)
        writer.times = self.options[TIMES]
        return writer


class Figures(NamedTuple):
    rows_per_s: float
    trigger_ms: float
    commit_ms: float
    broker_ms: float
    """CPU time of the broker for a trigger."""
    all_ms: float
    """CPU time of all processes for a trigger."""


def run(spark: SparkSession, broker: BrokerProcess, guarantee: str, arguments: argparse.Namespace) -> Figures:
    """Run a stream for some triggers, and stop it."""
    topic = f"{guarantee}-{time.time_ns()}"
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic(topic, partitions=arguments.partitions)
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", arguments.rows)
    rows = rows.option("numPartitions", arguments.tasks)
    values = rows.load().select(f.lpad(f.col("value").cast("string"), VALUE_BYTES, "x").cast("binary").alias("value"))
    with tempfile.TemporaryDirectory(prefix="sparklog-bench-") as folder:
        times = Path(folder, "times")
        times.touch()
        stream = values.writeStream.format("timed").option("kafka.bootstrap.servers", broker.bootstrap)
        stream = stream.option("topic", topic).option("deliveryGuarantee", guarantee).option(TIMES, str(times))
        query = stream.option("checkpointLocation", f"{folder}/checkpoint").start()
        processes = AllProcesses()
        try:
            first = wait_for(query, 0)
            before = (broker.cpu_seconds(), processes.cpu_seconds())
            last = wait_for(query, arguments.triggers)
            after = (broker.cpu_seconds(), processes.cpu_seconds())
        finally:
            query.stop()
        triggers = [each for each in query.recentProgress if 0 < each["batchId"] <= arguments.triggers]
        taken = [each["durationMs"]["triggerExecution"] for each in triggers]
        commits = [float(line) * 1000 for line in times.read_text().split()][1:]
        written = sum(each["numInputRows"] for each in triggers)
    cpu_ms = [(end - begin) * 1000 / (last - first) for begin, end in zip(before, after, strict=True)]
    return Figures(written / sum(taken) * 1000, median(taken), median(commits), *cpu_ms)


def wait_for(query: StreamingQuery, trigger: int) -> int:
    """Return the last trigger that is over, once that is this one or a later one. Raises RuntimeError if it failed."""

    def last() -> int:
        return int(query.lastProgress["batchId"]) if query.lastProgress else -1

    wait_for_query(query, lambda: last() >= trigger, every_s=PROGRESS_S)
    return last()


def seen_after_ms(bootstrap: str, partitions: int, batches: int) -> tuple[float, float]:
    """Return the median times of a commit by itself, and from its answer until readers see the batch."""
    topic = f"seen-{time.time_ns()}"
    names = [TopicPartition(topic, number) for number in range(partitions)]
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(topic, partitions=partitions)
    taken, seen = [], []
    with SinkClient(bootstrap_servers=bootstrap) as sinks, Consumer(bootstrap_servers=bootstrap) as consumer:
        for number in range(batches):
            batch = SinkBatchId(f"sink-of-{topic}", "run", number)
            identity = sinks.join(batch, timeout_ms=60_000)
            assert identity is not None
            with Producer(bootstrap_servers=bootstrap, transactional_id=batch.sink_id) as producer:
                producer.enlist(*identity)
                for partition in range(partitions):
                    producer.send(topic, b"x" * VALUE_BYTES, partition=partition)
                producer.flush()
            started = time.perf_counter()
            sinks.commit(batch, [BatchWinner(identity, {topic: list(range(partitions))})])
            answered = time.perf_counter()
            ends = (number + 1) * 2  # a record and a marker
            while any(end < ends for end in consumer.end_offsets(names).values()):
                pass
            taken.append((answered - started) * 1000)
            seen.append((time.perf_counter() - answered) * 1000)
    return median(taken), median(seen)


def main() -> None:
    arguments = parse_arguments()
    settings = {"spark.sql.streaming.numRecentProgressUpdates": str(arguments.triggers + 100)}
    spark = local_session("bench", delta=False, cores=arguments.cores, settings=settings, log_file=LOG_FILE)
    spark.dataSource.register(TimedSource)
    runs: dict[str, list[Figures]] = {guarantee: [] for guarantee in GUARANTEES}
    with broker_process() as broker:
        with (
            LOG_FILE.open("a") as log,
            redirect_stderr(log),
        ):  # each stop of a stream breaks off a connection of Spark's
            for number in range(arguments.rounds + 1):
                for guarantee in GUARANTEES if number % 2 else GUARANTEES[::-1]:
                    figures = run(spark, broker, guarantee, arguments)
                    if number:  # the first round compiles
                        runs[guarantee].append(figures)
        print(f"{'':<16}{'rows/s':>12}{'trigger ms':>14}{'commit ms':>14}{'broker CPU ms':>16}{'all CPU ms':>14}")
        for guarantee, found in runs.items():
            middle = Figures(*map(median, zip(*found, strict=True)))
            print(
                f"{guarantee:<16}{middle.rows_per_s:>12,.0f}{middle.trigger_ms:>14.1f}{middle.commit_ms:>14.1f}"
                f"{middle.broker_ms:>16.1f}{middle.all_ms:>14.0f}"
            )
        once, least = (sum(each.rows_per_s for each in runs[guarantee]) for guarantee in (EXACTLY_ONCE, AT_LEAST_ONCE))
        print(f"exactly once has {once / least:.0%} of the rows/s of at least once, over all rounds")
        commit_ms, seen_ms = seen_after_ms(broker.bootstrap, arguments.partitions, arguments.triggers)
        print(f"a commit by itself {commit_ms:.1f} ms, seen by readers {seen_ms:.1f} ms after its answer")
    spark.stop()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000, help="of a trigger")
    parser.add_argument("--triggers", type=int, default=20, help="of a run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=2, help="of a trigger")
    parser.add_argument("--partitions", type=int, default=4, help="of the topic")
    parser.add_argument("--cores", type=int, default=2, help="of the SparkSession, local[n]")
    return parser.parse_args()


if __name__ == "__main__":
    main()
