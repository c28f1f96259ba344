"""Reading a topic that a transactional producer has filled, in Spark:  python -m bench.spark_isolation [--help]

The producer writes 100-byte records in transactions of --transaction records each, and aborts a share of them. Each is
read with kafka.isolation.level = read_committed and read_uncommitted, for each query of bench.spark_read: straight from
segment files, and through the broker (fetch). A round reads with one level, twice with the other, and with the first
again, so that neither gains where the machine gets faster or slower; --rounds of them count:

    M rows/s        median, in millions of rows that Spark gets in a second; with read_uncommitted also those that were
                    aborted
    time            what a row takes with read_committed, as a share of what it takes with read_uncommitted, over all
                    rounds
    CPU             the same of the CPU time of Spark, its Python workers and the broker
    tasks alone     CPU time of what Spark's tasks do, here in one process without Spark: what tells the levels apart on
                    a machine that does other work too
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from statistics import median

from pyspark.sql import SparkSession

from bench.harness import AllProcesses, broker_process
from bench.spark_read import LOG_FILE, QUERIES, TOPIC, records, timed
from sparklog.client import Admin, Producer
from sparklog.spark.session import local_session
from sparklog.spark.source.source import SparklogDataSource

LEVELS = COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
MODES = ("segments", "fetch")


def fill(bootstrap: str, arguments: argparse.Namespace) -> dict[str, int]:
    """Write the topic in transactions; return the number of rows that each isolation level shows."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        configs = {"retention.ms": "-1", "segment.bytes": str(128 << 20)}
        admin.create_topic(TOPIC, partitions=arguments.partitions, configs=configs)
    rows = dict.fromkeys(LEVELS, 0)
    due = 0.0
    with Producer(bootstrap_servers=bootstrap, transactional_id="bench", linger_ms=0) as producer:
        for number, first in enumerate(range(0, arguments.records, arguments.transaction)):
            table = records(min(arguments.transaction, arguments.records - first), first)
            producer.begin()
            producer.send_table(TOPIC, table, partition=number % arguments.partitions).result()
            due += arguments.aborted
            if due >= 1:
                producer.abort()
                due -= 1
            else:
                producer.commit()
                rows[COMMITTED] += table.num_rows
            rows[UNCOMMITTED] += table.num_rows
    return rows


class Costs:
    """What reading the topic took with each level, in seconds per row."""

    def __init__(self) -> None:
        self._wall: dict[str, list[float]] = {level: [] for level in LEVELS}
        self._cpu: dict[str, list[float]] = {level: [] for level in LEVELS}

    def add(self, level: str, rows: int, wall_s: float, cpu_s: float) -> None:
        self._wall[level].append(wall_s / rows)
        self._cpu[level].append(cpu_s / rows)

    def rate(self, level: str) -> float:
        """Return the median, in millions of rows per second."""
        return 1e-6 / median(self._wall[level])

    def cpu(self, level: str) -> float:
        """Return the median CPU time, in seconds for a million rows."""
        return 1e6 * median(self._cpu[level])

    @property
    def wall_share(self) -> float:
        return sum(self._wall[COMMITTED]) / sum(self._wall[UNCOMMITTED])

    @property
    def cpu_share(self) -> float:
        return sum(self._cpu[COMMITTED]) / sum(self._cpu[UNCOMMITTED])


def in_turns(rounds: int) -> Iterator[str]:
    """Yield the levels, each twice a round, and first and last in turns."""
    for number in range(rounds):
        first, second = LEVELS if number % 2 else LEVELS[::-1]
        yield from (first, second, second, first)


def compare(
    spark: SparkSession, bootstrap: str, rows: dict[str, int], mode: str, arguments: argparse.Namespace
) -> None:
    """Print the rates of both levels for every query."""
    read = spark.read.format("sparklog").option("minPartitions", arguments.tasks).option("subscribe", TOPIC)
    read = read.option("kafka.bootstrap.servers", bootstrap).option("readMode", mode)
    frames = {level: read.option("kafka.isolation.level", level).load() for level in LEVELS}
    for level, frame in frames.items():
        if (found := frame.count()) != rows[level]:
            raise RuntimeError(f"{mode}, {level}: {found} rows instead of {rows[level]}")
    processes = AllProcesses()
    costs = {name: Costs() for name in QUERIES}
    for name, query in QUERIES.items():
        timed(query, frames[COMMITTED])  # compiles the query
        for level in in_turns(arguments.rounds):
            before = processes.cpu_seconds()
            taken = timed(query, frames[level])
            costs[name].add(level, rows[level], taken, processes.cpu_seconds() - before)
    for level in LEVELS:
        print(f"{f'{mode}, {level}':<40}" + "".join(f"{costs[name].rate(level):>20.2f}" for name in QUERIES))
    print(f"{'  time':<40}" + "".join(f"{costs[name].wall_share:>20.1%}" for name in QUERIES))
    print(f"{'  CPU':<40}" + "".join(f"{costs[name].cpu_share:>20.1%}" for name in QUERIES), flush=True)


def compare_tasks(bootstrap: str, rows: dict[str, int], mode: str, arguments: argparse.Namespace) -> None:
    """Print the CPU time of the tasks of both levels, run in this process."""
    costs = Costs()
    for number, level in enumerate([COMMITTED, *in_turns(arguments.rounds)]):
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC, "readMode": mode}
        source = SparklogDataSource({**options, "kafka.isolation.level": level})
        reader = source.reader(source.schema())
        begun, cpu, found = time.perf_counter(), time.process_time(), 0
        for task in reader.partitions():
            found += sum(batch.num_rows for batch in reader.read(task))
        if found != rows[level]:
            raise RuntimeError(f"{mode}, {level}: {found} rows instead of {rows[level]}")
        if number:  # the first compiles
            costs.add(level, rows[level], time.perf_counter() - begun, time.process_time() - cpu)
    text = ", ".join(f"{level} {costs.cpu(level):.3f}" for level in LEVELS)
    print(f"{mode}, tasks alone, CPU s for a million rows: {text}; CPU {costs.cpu_share:.1%}", flush=True)


def main() -> None:
    arguments = parse_arguments()
    spark = local_session("bench", delta=False, cores=arguments.cores, log_file=LOG_FILE)
    with broker_process() as broker:
        rows = fill(broker.bootstrap, arguments)
        for mode in MODES:
            compare_tasks(broker.bootstrap, rows, mode, arguments)
        print(f"{'':<40}" + "".join(f"{name:>20}" for name in QUERIES), flush=True)
        for mode in MODES:
            compare(spark, broker.bootstrap, rows, mode, arguments)
    spark.stop()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=5_000_000, help="written, with those that are aborted")
    parser.add_argument("--transaction", type=int, default=5_000, help="records of a transaction")
    parser.add_argument("--aborted", type=float, default=0.0, help="share of the transactions, 0 to 1")
    parser.add_argument("--partitions", type=int, default=2, help="of the topic")
    parser.add_argument("--tasks", type=int, default=4, help="tasks of each read (minPartitions)")
    parser.add_argument("--cores", type=int, default=2, help="of the SparkSession, local[n]")
    parser.add_argument("--rounds", type=int, default=6, help="of each query, each of four reads")
    return parser.parse_args()


if __name__ == "__main__":
    main()
