"""Transactions on sparklog, and on Apache Kafka:  python -m bench.transactions [--help]

    transactions     one after the other, each of one record of 100 B in each of 1, 10 and 100 partitions: how many a
                     second, and the broker's CPU time for one
    records          produced in transactions of 100 ms against the same producer without any: the rate, and how much of
                     it is left in transactions

The client is librdkafka (confluent-kafka), of protocol 1; acks=all, one replica. With --kafka HOST:PORT and --kafka-pid
PID of an Apache Kafka on this machine, each is measured on it too, in turns. On one machine the CPU of the brokers,
read from /proc, tells them apart.
"""

from __future__ import annotations

import argparse
import time
import uuid
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.harness import BrokerProcess, broker_process

TIMEOUT_S = 60
WIDTHS = (1, 10, 100)
VALUE = b"x" * 100
TRANSACTION_S = 0.1


Work = Callable[[str, Callable[[], float]], "Figures"]


class Figures(NamedTuple):
    per_s: float
    cpu_us: float
    """Of the broker, for one."""


def transactions(bootstrap: str, cpu_s: Callable[[], float], *, width: int, seconds: float) -> Figures:
    """Return how many transactions of one record in each of `width` partitions there are in a second."""
    topic = _topic(bootstrap, width)
    producer = _producer(bootstrap, is_transactional=True)
    _commit(producer, topic, width)
    before, started, count = cpu_s(), time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        _commit(producer, topic, width)
        count += 1
    return Figures(count / (time.perf_counter() - started), (cpu_s() - before) / count * 1e6)


def records(bootstrap: str, cpu_s: Callable[[], float], *, is_transactional: bool, seconds: float) -> Figures:
    """Return how many records a producer writes in a second."""
    topic = _topic(bootstrap, 1)
    producer = _producer(bootstrap, is_transactional=is_transactional)
    before, started, count = cpu_s(), time.perf_counter(), 0
    while (now := time.perf_counter()) - started < seconds:
        if is_transactional:
            producer.begin_transaction()
        until = now + TRANSACTION_S
        while time.perf_counter() < until:
            for _ in range(100):
                _produce(producer, topic, 0)
            count += 100
        if is_transactional:
            producer.commit_transaction(TIMEOUT_S)
    if producer.flush(TIMEOUT_S):
        raise RuntimeError("not all records were delivered in time")
    return Figures(count / (time.perf_counter() - started), (cpu_s() - before) / count * 1e6)


def _commit(producer: Producer, topic: str, width: int) -> None:
    producer.begin_transaction()
    for partition in range(width):
        producer.produce(topic, VALUE, partition=partition)
    producer.commit_transaction(TIMEOUT_S)


def _produce(producer: Producer, topic: str, partition: int) -> None:
    while True:
        try:
            producer.produce(topic, VALUE, partition=partition)
            return
        except BufferError:
            producer.poll(0.01)


def _producer(bootstrap: str, *, is_transactional: bool) -> Producer:
    options = {"bootstrap.servers": bootstrap, "linger.ms": 0 if is_transactional else 5}
    if not is_transactional:
        return Producer(options)
    producer = Producer({**options, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(TIMEOUT_S)
    return producer


def _topic(bootstrap: str, partitions: int) -> str:
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(TIMEOUT_S)
    return topic


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="time for each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; the best of each is printed")
    parser.add_argument("--kafka", default="", help="HOST:PORT of an Apache Kafka")
    parser.add_argument("--kafka-pid", type=int, default=0, help="its process")
    options = parser.parse_args()
    with broker_process("listeners=PLAINTEXT://127.0.0.1:0") as broker:
        brokers = {"sparklog": (broker.kafka, broker.cpu_seconds)}
        if options.kafka:
            brokers["Apache Kafka"] = (options.kafka, BrokerProcess(options.kafka_pid, "", options.kafka).cpu_seconds)
        works: dict[str, Work] = {
            f"transactions, {width} partitions": partial(transactions, width=width, seconds=options.seconds)
            for width in WIDTHS
        }
        for name, is_transactional in (("records, no transaction", False), ("records, in transactions", True)):
            works[name] = partial(records, is_transactional=is_transactional, seconds=options.seconds)
        best: dict[tuple[str, str], Figures] = {}
        for _, work, who in product(range(options.rounds), works, brokers):
            found = works[work](*brokers[who])
            best[work, who] = max(found, best.get((work, who), found))
        print(f"{'':30}{'':14}{'per second':>12}{'CPU us each':>14}")
        for (work, who), figures in sorted(best.items()):
            print(f"{work:30}{who:14}{figures.per_s:12,.0f}{figures.cpu_us:14,.1f}")


if __name__ == "__main__":
    main()
