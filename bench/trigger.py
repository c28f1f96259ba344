"""A streaming trigger that reads few rows, beside Spark's Kafka source:  python -m bench.trigger [--help]

Both sources read from the same broker, each in a query of its own with Spark's default trigger and a sink that drops
rows. The queries take turns, --rounds times; the first triggers of each run are left out, as Spark compiles then.

    single      a row is sent when the query waits for one
    steady      a row is sent every 10 ms, so that a trigger finds some

Medians over all triggers with rows, in ms:

    trigger     a whole trigger (triggerExecution)
    latest      asking for the end of the topic (latestOffset)
    plan        planning the query (queryPlanning)
    add         running the task and its sink (addBatch)
    logs        writing offsets and commits to the checkpoint (walCommit, commitOffsets)
    arrives     from the acknowledgement of a row until its trigger ends (single)

With --kafka HOST:PORT, Spark's Kafka source reads a topic of that Apache Kafka as well.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import redirect_stderr
from datetime import datetime
from pathlib import Path
from statistics import median

from confluent_kafka import Producer as KafkaProducer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.listener import StreamingQueryProgress

from bench.harness import broker_process, wait_for_query
from bench.spark_read import kafka_jars
from sparklog.spark.session import local_session

LOG_FILE = Path(tempfile.gettempdir()) / "sparklog-bench-trigger.log"
PARTS: dict[str, tuple[str, ...]] = {
    "trigger": ("triggerExecution",),
    "latest": ("latestOffset",),
    "plan": ("queryPlanning",),
    "add": ("addBatch",),
    "logs": ("walCommit", "commitOffsets"),
}
DEADLINE_S = 300.0
PAUSE_S = 0.2
"""Time before a single row, so that the query waits when it is sent."""
EVERY_S = 0.01

Times = dict[str, float]


def run(
    spark: SparkSession, source: str, bootstrap: str, kafka: str, arguments: argparse.Namespace
) -> dict[str, list[Times]]:
    """Send rows to a new topic while a query reads it; return the times of the triggers of each kind, in ms.

    bootstrap: of the source
    kafka: of a Kafka listener of the same broker, for the producer
    """
    topic = f"trigger-{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(topic, arguments.partitions, 1)])[topic].result(DEADLINE_S)
    producer = KafkaProducer({"bootstrap.servers": kafka, "linger.ms": 0})
    stream = spark.readStream.format(source).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    with tempfile.TemporaryDirectory(prefix="sparklog-bench-") as folder:
        query = stream.load().writeStream.format("noop").option("checkpointLocation", folder).start()
        try:
            wait_for_query(query, lambda: "Waiting for data" in query.status["message"])
            single = [send_one(query, producer, topic) for _ in range(arguments.warm + arguments.triggers)]
            return {"single": single[arguments.warm :], "steady": send_often(query, producer, topic, arguments)}
        finally:
            query.stop()


def send_one(query: StreamingQuery, producer: KafkaProducer, topic: str) -> Times:
    """Send a row to a query that waits; return the times of the trigger that reads it."""
    time.sleep(PAUSE_S)
    before = len(_with_rows(query))
    producer.produce(topic, b"x" * 100)
    producer.flush(DEADLINE_S)
    acknowledged_s = time.time()
    wait_for_query(query, lambda: len(_with_rows(query)) > before)
    progress = _with_rows(query)[-1]
    ended_s = datetime.fromisoformat(progress["timestamp"]).timestamp() + _times(progress)["trigger"] / 1000
    return {**_times(progress), "arrives": (ended_s - acknowledged_s) * 1000}


def send_often(
    query: StreamingQuery, producer: KafkaProducer, topic: str, arguments: argparse.Namespace
) -> list[Times]:
    """Send rows until there were enough triggers; return the times of these."""
    before = len(_with_rows(query)) + arguments.warm

    def send() -> bool:
        producer.produce(topic, b"x" * 100)
        producer.poll(0)
        return len(_with_rows(query)) >= before + arguments.triggers

    wait_for_query(query, send, every_s=EVERY_S)
    return [_times(each) for each in _with_rows(query)[before:]]


def _times(progress: StreamingQueryProgress) -> Times:
    return {name: float(sum(progress["durationMs"].get(part, 0) for part in parts)) for name, parts in PARTS.items()}


def _with_rows(query: StreamingQuery) -> list[StreamingQueryProgress]:
    return [each for each in query.recentProgress if each["numInputRows"]]


def main() -> None:
    arguments = parse_arguments()
    settings = {"spark.jars": ",".join(kafka_jars()), "spark.sql.streaming.numRecentProgressUpdates": "1000"}
    spark = local_session("bench", delta=False, settings=settings, log_file=LOG_FILE)
    with broker_process("listeners=PLAINTEXT://127.0.0.1:0") as broker, LOG_FILE.open("a") as log, redirect_stderr(log):
        lines = {
            "sparklog": ("sparklog", broker.bootstrap, broker.kafka),
            "Kafka source": ("kafka", broker.kafka, broker.kafka),
        }
        if arguments.kafka:
            lines["Kafka source, Apache Kafka"] = ("kafka", arguments.kafka, arguments.kafka)
        found: dict[str, dict[str, list[Times]]] = {"single": {}, "steady": {}}
        for number in range(arguments.rounds):
            for name in list(lines) if number % 2 else reversed(lines):
                for kind, rows in run(spark, *lines[name], arguments).items():
                    found[kind].setdefault(name, []).extend(rows)
    print(f"{'ms':<36}" + "".join(f"{name:>9}" for name in (*PARTS, "arrives")))
    for kind, by_line in found.items():
        for name in lines:
            rows = by_line[name]
            print(
                f"{kind + ', ' + name:<36}" + "".join(f"{median(row[each] for row in rows):>9.0f}" for each in rows[0])
            )
    spark.stop()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--triggers", type=int, default=30, help="of each kind, in a run")
    parser.add_argument("--warm", type=int, default=10, help="triggers before them, which do not count")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=1, help="of the topic")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="an Apache Kafka to compare with")
    return parser.parse_args()


if __name__ == "__main__":
    main()
