"""Kafka's clients against sparklog, and against Apache Kafka:  python -m bench.kafka_wire [--help]

    java          Kafka's own ProducerPerformance and ConsumerPerformance (`make test` fetches their jars)
    librdkafka    confluent-kafka, a plain loop over produce() and consume()

Each measurement is one producer and then one consumer of a topic of its own with one partition, acks=all and the
client's defaults otherwise; values are random letters. With --kafka HOST:PORT and --kafka-pid PID of an Apache Kafka on
this machine, each is measured on it too, in turns. Rates are those that the tool reports, and mostly the client's
limit. On one machine the CPU of the brokers, read from /proc, tells them apart.
"""

from __future__ import annotations

import argparse
import random
import re
import string
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.harness import BrokerProcess, broker_process, percentile

JARS = Path(__file__).parents[1] / ".cache" / "kafka"
JAVA = ["java", "-Xmx512M", "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", f"{JARS}/*"]
TOOLS = "org.apache.kafka.tools"
PRODUCED = re.compile(
    r"sent, (?P<rate>[\d.]+) records/sec \((?P<mib>[\d.]+) MB/sec\).* (?P<p99>\d+) ms 99th",
)
VALUES = 1000
SAMPLED = 1000  # the latency of one record in so many is measured
TIMEOUT_S = 120
SETTLE_S = 0.5


class Figures(NamedTuple):
    records_per_s: float
    p99_ms: float | None = None


class Load(NamedTuple):
    """The records that one measurement sends and reads."""

    topic: str
    records: int
    size: int
    codec: str


def java_produce(bootstrap: str, load: Load) -> Figures:
    out = _tool(
        "ProducerPerformance", "--bootstrap-server", bootstrap, "--topic", load.topic, "--throughput", "-1",
        "--num-records", str(load.records), "--record-size", str(load.size),
        "--command-property", "acks=all", f"compression.type={load.codec}",
    )  # fmt: skip
    found = PRODUCED.search(out.splitlines()[-1])
    if not found:
        raise RuntimeError(out)
    return Figures(float(found["rate"]), float(found["p99"]))


def java_consume(bootstrap: str, load: Load) -> Figures:
    out = _tool(
        "ConsumerPerformance", "--bootstrap-server", bootstrap, "--topic", load.topic, "--hide-header",
        "--num-records", str(load.records), "--timeout", str(1000 * TIMEOUT_S),
    )  # fmt: skip
    fields = [field.strip() for field in out.strip().splitlines()[-1].split(",")]
    if int(fields[4]) < load.records:
        raise RuntimeError(out)
    return Figures(float(fields[9]))  # rate over the time spent in fetching, without the rebalance before


def librdkafka_produce(bootstrap: str, load: Load) -> Figures:
    values = random_values(load.size)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": load.codec,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    latencies: list[float] = []
    started = time.perf_counter()
    for number in range(load.records):
        value = values[number % VALUES]
        while True:
            try:
                if number % SAMPLED:
                    producer.produce(load.topic, value)
                else:
                    producer.produce(load.topic, value, on_delivery=lambda _, sent: latencies.append(sent.latency()))
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(TIMEOUT_S):
        raise RuntimeError("not all records were delivered in time")
    return Figures(load.records / (time.perf_counter() - started), percentile(latencies, 0.99) * 1000)


def librdkafka_consume(bootstrap: str, load: Load) -> Figures:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "fetch.queue.backoff.ms": 10})
    consumer.assign([TopicPartition(load.topic, 0, 0)])
    count = 0
    started = time.perf_counter()
    while count < load.records:
        found = consumer.consume(500, timeout=TIMEOUT_S)
        if not found:
            raise RuntimeError(f"{count} of {load.records} records came")
        count += len(found)
    seconds = time.perf_counter() - started
    consumer.close()
    return Figures(count / seconds)


Step = Callable[[str, Load], Figures]
CLIENTS: dict[str, tuple[Step, Step]] = {
    "java": (java_produce, java_consume),
    "librdkafka": (librdkafka_produce, librdkafka_consume),
}


def random_values(size: int) -> list[bytes]:
    letters = random.Random(size)
    return ["".join(letters.choices(string.ascii_uppercase, k=size)).encode() for _ in range(VALUES)]


def _tool(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [*JAVA, f"{TOOLS}.{name}", *arguments], capture_output=True, text=True, timeout=5 * TIMEOUT_S, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout


@contextmanager
def topic(bootstrap: str) -> Iterator[str]:
    name = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(TIMEOUT_S)
    yield name
    admin.delete_topics([name])[name].result(TIMEOUT_S)


def measure(peer: str, broker: BrokerProcess, client: str, load: Load) -> None:
    """Run one producer and one consumer, and print a line for each."""
    with topic(broker.kafka) as name:
        for verb, step in zip(("produce", "consume"), CLIENTS[client], strict=True):
            cpu = broker.cpu_seconds()
            figures = step(broker.kafka, load._replace(topic=name))
            cpu = broker.cpu_seconds() - cpu
            p99 = "" if figures.p99_ms is None else f"p99 {figures.p99_ms:>7.1f} ms"
            print(
                f"{client:<11}{verb:<8}{load.size:>5} B {load.codec:<5}{peer:<9}{figures.records_per_s:>11,.0f} rec/s"
                f" {figures.records_per_s * load.size / 1e6:>8,.1f} MB/s  {p99:<15}"
                f"  broker {cpu:>6.2f} CPU s, {cpu / load.records * 1e6:>6.3f} us/record",
                flush=True,
            )
            time.sleep(SETTLE_S)


def warm_up(peers: dict[str, BrokerProcess], client: str, load: Load) -> None:
    """Let brokers and client load and compile what they need, unmeasured."""
    for broker in peers.values():
        with topic(broker.kafka) as name:
            for step in CLIENTS[client]:
                step(broker.kafka, load._replace(topic=name, records=load.records // 10))


def main() -> None:
    parser = argparse.ArgumentParser(description="Kafka's clients against sparklog and Apache Kafka.")
    parser.add_argument("--records", type=int, default=2_000_000, help="records of 100 bytes; fewer if they are larger")
    parser.add_argument("--sizes", default="100,1024")
    parser.add_argument("--codecs", default="none,lz4,zstd")
    parser.add_argument("--clients", default="java,librdkafka")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--kafka", metavar="HOST:PORT", help="an Apache Kafka on this machine")
    parser.add_argument("--kafka-pid", type=int)
    options = parser.parse_args()
    with broker_process("listeners=PLAINTEXT://127.0.0.1:0") as broker:
        peers = {"sparklog": broker}
        if options.kafka:
            peers["kafka"] = BrokerProcess(options.kafka_pid, "", options.kafka)
        sizes = [int(size) for size in options.sizes.split(",")]
        for client, size, codec in product(options.clients.split(","), sizes, options.codecs.split(",")):
            load = Load("", options.records * 100 // min(size, 400), size, codec)
            if size == sizes[0] and codec == options.codecs.split(",")[0]:
                warm_up(peers, client, load)
            for _ in range(options.runs):
                for peer, process in peers.items():
                    measure(peer, process, client, load)
        for peer, process in peers.items():
            print(f"{peer}: {process.memory_mib():,.0f} MiB at most")


if __name__ == "__main__":
    main()
