"""Reading a topic that a transactional producer has filled, in Spark:  python -m bench.spark_isolation [--help]

The producer writes 100-byte records in transactions of --transaction records each, and aborts a share of them. Each is
read with kafka.isolation.level = read_committed and read_uncommitted in turns, --runs times for each query of
bench.spark_read: straight from segment files, and through the broker (fetch). The best run counts:

    M rows/s        millions of rows that Spark gets in a second; with read_uncommitted also those that were aborted
    tasks alone     CPU time of what Spark's tasks do, here in one process without Spark: what tells the levels apart on
                    a machine that does other work too. Last comes the ratio of reading the whole topic
"""

from __future__ import annotations

import argparse
import time
from itertools import product

from pyspark.sql import SparkSession

from bench.harness import broker_process
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
    rates: dict[tuple[str, str], float] = {}
    for _, name, level in product(range(arguments.runs), QUERIES, LEVELS):
        rate = rows[level] / timed(QUERIES[name], frames[level]) / 1e6
        rates[level, name] = max(rate, rates.get((level, name), 0.0))
    for level in LEVELS:
        print(f"{f'{mode}, {level}':<40}" + "".join(f"{rates[level, name]:>20.2f}" for name in QUERIES))
    shares = (rates[COMMITTED, name] / rates[UNCOMMITTED, name] for name in QUERIES)
    print(f"{'':<40}" + "".join(f"{share:>20.0%}" for share in shares), flush=True)


def compare_tasks(bootstrap: str, rows: dict[str, int], mode: str, arguments: argparse.Namespace) -> None:
    """Print the CPU time of the tasks of both levels, run in this process."""
    costs: dict[str, float] = {}
    for _, level in product(range(arguments.runs + 1), LEVELS):
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC, "readMode": mode}
        source = SparklogDataSource({**options, "kafka.isolation.level": level})
        reader = source.reader(source.schema())
        begun, found = time.process_time(), 0
        for task in reader.partitions():
            found += sum(batch.num_rows for batch in reader.read(task))
        cost = time.process_time() - begun
        if found != rows[level]:
            raise RuntimeError(f"{mode}, {level}: {found} rows instead of {rows[level]}")
        costs[level] = min(cost, costs.get(level, cost))
    text = ", ".join(f"{level} {costs[level] / rows[level] * 1e6:.3f}" for level in LEVELS)
    ratio = costs[COMMITTED] / costs[UNCOMMITTED]
    print(f"{mode}, tasks alone, CPU s for a million rows: {text}; the whole topic: {ratio:.0%}", flush=True)


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
    parser.add_argument("--aborted", type=float, default=0.1, help="share of the transactions, 0 to 1")
    parser.add_argument("--partitions", type=int, default=2, help="of the topic")
    parser.add_argument("--tasks", type=int, default=4, help="tasks of each read (minPartitions)")
    parser.add_argument("--cores", type=int, default=2, help="of the SparkSession, local[n]")
    parser.add_argument("--runs", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
