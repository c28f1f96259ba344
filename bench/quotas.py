"""How close clients come to their quotas:  python -m bench.quotas [--help]

A client of librdkafka and Kafka's ProducerPerformance and ConsumerPerformance (`make test` fetches their jars) produce
to a topic and read it, as fast as they are let, for --seconds each, with a quota of --rate bytes per second for their
client id. What counts are the bytes of batches that the broker has appended and handed out in that time; requests and
responses have a few more.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.harness import broker_process
from bench.kafka_wire import JAVA, TOOLS
from sparklog.base.quotas import QuotaChange, entity
from sparklog.client import Admin

TOPIC = "bench"
SIZE = 1_000
POLL_S = 0.01
SETTLED_S = 5.0
"""A client is measured after this time: it has connected, and used up what it had saved."""


def librdkafka_produce(bootstrap: str, seconds: float) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "librdkafka", "linger.ms": 50})
    ends, value = time.monotonic() + seconds, bytes(SIZE)
    while time.monotonic() < ends:
        with suppress(BufferError):
            for _ in range(100):
                producer.produce(TOPIC, value)
        producer.poll(POLL_S)
    producer.purge()


def librdkafka_consume(bootstrap: str, seconds: float) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "client.id": "librdkafka", "group.id": "bench"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        consumer.consume(1_000, POLL_S)
    consumer.close()


def java(tool: str, seconds: float, *arguments: str) -> None:
    running = subprocess.Popen(
        [*JAVA, f"{TOOLS}.{tool}", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        running.wait(seconds)
        raise RuntimeError(f"{tool} has ended before its time: give it more records")
    except subprocess.TimeoutExpired:
        running.kill()
        running.wait()


def java_produce(bootstrap: str, seconds: float) -> None:
    java(
        "ProducerPerformance", seconds, "--bootstrap-server", bootstrap, "--topic", TOPIC, "--throughput", "-1",
        "--num-records", "100000000", "--record-size", str(SIZE), "--command-property", "client.id=java",
    )  # fmt: skip


def java_consume(bootstrap: str, seconds: float) -> None:
    java(
        "ConsumerPerformance", seconds, "--bootstrap-server", bootstrap, "--topic", TOPIC,
        "--num-records", "100000000", "--timeout", "100000", "--command-property", "client.id=java",
    )  # fmt: skip


WAYS: tuple[tuple[str, str, Callable[[str, float], None]], ...] = (
    ("librdkafka", "produce", librdkafka_produce),
    ("java", "produce", java_produce),
    ("librdkafka", "consume", librdkafka_consume),
    ("java", "consume", java_consume),
)


@contextmanager
def quota(admin: Admin, client_id: str, rate: int) -> Iterator[None]:
    """Limit the client to `rate` bytes per second inside the block."""
    name = entity({"client-id": client_id})
    values = {"producer_byte_rate": float(rate), "consumer_byte_rate": float(rate)}
    admin.alter_client_quotas([QuotaChange(entity=name, values=values)])
    yield
    admin.alter_client_quotas([QuotaChange(entity=name, removed=list(values))])


def fill(bootstrap: str, size: int) -> None:
    """Write so many bytes of records, for consumers to read."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for _ in range(size // SIZE):
        producer.produce(TOPIC, bytes(SIZE))
        while len(producer) > 10_000:
            producer.poll(POLL_S)
    producer.flush()


def traffic(metrics: str, name: str) -> float:
    """Return the bytes of batches that went into the topic, or out of it."""
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=10) as page:
        text = page.read().decode()
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(f'{name}{{topic="{TOPIC}"}}'))


def measured(bootstrap: str, metrics: str, what: str, run: Callable[[str, float], None], seconds: float) -> float:
    """Return the bytes per second of a client that runs for `seconds` after it has settled."""
    name = "sparklog_bytes_in_total" if what == "produce" else "sparklog_bytes_out_total"
    client = threading.Thread(target=run, args=(bootstrap, seconds + SETTLED_S + 1), daemon=True)
    client.start()
    time.sleep(SETTLED_S)
    began, before = time.monotonic(), traffic(metrics, name)
    time.sleep(seconds)
    moved, took = traffic(metrics, name) - before, time.monotonic() - began
    client.join()
    return moved / took


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def main() -> None:
    arguments = parse_arguments()
    metrics = free_address()
    settings = ("listeners=PLAINTEXT://127.0.0.1:0", f"metrics.listener={metrics}")
    with broker_process(*settings) as broker, Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=1)
        fill(broker.kafka, int(arguments.rate * (arguments.seconds + 2 * SETTLED_S)))
        for client, what, run in WAYS:
            with quota(admin, client, arguments.rate):
                rate = measured(broker.kafka, metrics, what, run, arguments.seconds)
            print(f"{client:<12}{what:<10}{rate / arguments.rate:>8.1%} of {arguments.rate:,} bytes/s", flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=1_000_000, help="quota in bytes per second")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement")
    return parser.parse_args()


if __name__ == "__main__":
    main()
