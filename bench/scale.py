"""What grows with the size of a cluster:  python -m bench.scale [--help]

    partitions     a Produce of one record and a Fetch of 16 KB to one partition of a broker that has 1, 100, 1,000 and
                   10,000 of them, and what that broker does without requests
    connections    the same requests over 1, 10, 100 and 1,000 connections, each with one request in flight
    open           the start of a broker with 10,000 partitions and 100 GB of logs (sparse files), stopped cleanly
    group          a consumer group (KIP-848) of 1,000 members: joins one after the other, then heartbeats
    replication    a Produce with acks=all to one partition of two brokers that replicate 1, 100, 1,000 and 10,000 of
                   each other, one request in flight
    failover       three brokers and 10,000 partitions of two replicas: the controller is killed, which has the second
                   session time-out begin, until all partitions have leaders again

CPU times are the broker's, with the kernel's part. "late" is the p99 of the event loop's delay; up to 1 ms of it is the
timer's own. About 8 minutes for all.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from bench.cores import cluster, leaders_of
from bench.frames import SIZE, connected, framed
from bench.harness import BrokerProcess, broker_process
from bench.requests import TIMEOUT_S, Load, batch, fetch, produce, run
from sparklog.base.clock import SystemClock
from sparklog.base.config import BrokerConfig
from sparklog.base.fs import LocalFs
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.broker.metrics import LATENCY_BUCKETS_S
from sparklog.log.directory.manager import LogManager
from sparklog.server.broker_collector import quantile
from sparklog.testing.kafka_frames import read_response

PARTITIONS = (1, 100, 1_000, 10_000)
CONNECTIONS = (1, 10, 100, 1_000)
MANY, MEMBERS = 10_000, 1_000
MOST_IN_REQUEST = 2_000
LOG_BYTES = 100 * 10**9
HEARTBEAT = (68, 0)
IDLE_S = 3.0
SESSION_MS = 3_000
EVERY_S = 0.02
METRICS_PORT = 19404
LISTENERS = ("listeners=PLAINTEXT://127.0.0.1:0", f"metrics.listener=127.0.0.1:{METRICS_PORT}")
BROKERS = 3


def admin_of(broker: BrokerProcess) -> Any:
    return AdminClient({"bootstrap.servers": broker.kafka, "log_level": 0, "socket.timeout.ms": 1000 * TIMEOUT_S})


def create(broker: BrokerProcess, partitions: int, replicas: int = 1) -> str:
    """Create topics with so many partitions in all; return the name of the first."""
    topics = [NewTopic(f"scale-{uuid4().hex[:8]}", min(partitions - at, MOST_IN_REQUEST), replicas)
              for at in range(0, partitions, MOST_IN_REQUEST)]  # fmt: skip
    admin = admin_of(broker)
    for topic in topics:
        made = admin.create_topics([topic], operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S)
        made[topic.topic].result(TIMEOUT_S)
    return str(topics[0].topic)


class Lag:
    """The delays of a broker's event loop since the last look."""

    def __init__(self) -> None:
        self._seen = [0.0] * (len(LATENCY_BUCKETS_S) + 1)
        self.p99_ms()

    def p99_ms(self) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{METRICS_PORT}/metrics", timeout=TIMEOUT_S) as answer:
            families = text_string_to_metric_families(answer.read().decode())
        samples = next(each.samples for each in families if each.name == "sparklog_event_loop_lag_seconds")
        upto = [sample.value for sample in samples if sample.name.endswith("_bucket")]
        before, self._seen = self._seen, upto
        new = [now - then for now, then in zip(upto, before, strict=True)]
        counts = [int(each - below) for each, below in zip(new, [0.0, *new[:-1]], strict=True)]
        return 1000 * quantile(LATENCY_BUCKETS_S, counts, 0.99)


def loads(topic: str) -> dict[str, bytes]:
    one = range(1)
    return {"Produce": produce(topic, one, batch(1)), "Fetch": fetch(topic, one, 16 << 10)}


def measure(broker: BrokerProcess, topic: str, connections: int, in_flight: int, options: argparse.Namespace) -> str:
    """Return the CPU time of a Produce and of a Fetch, and how late the event loop was, as cells of a table."""
    lag, cells = Lag(), ""
    for frame in loads(topic).values():
        load = Load("", lambda _, frame=frame: frame, connections, in_flight)  # type: ignore[misc]
        found = [run(broker, load, frame, options.seconds) for _ in range(options.rounds)]
        cells += f"{min(each.cpu_us for each in found):>14.1f}"
    return f"{cells}{lag.p99_ms():>11.1f}"


def partitions(options: argparse.Namespace) -> None:
    print(
        f"{'partitions':<12}{'Produce us':>14}{'Fetch us':>14}{'late ms':>11}{'idle ms/s':>11}"
        f"{'MiB':>8}{'create s':>10}"
    )
    with broker_process(*LISTENERS) as broker:
        topic = create(broker, 1)
        fill(broker, topic)
        have, took = 1, 0.0
        for wanted in PARTITIONS:
            if wanted > have:
                began = time.perf_counter()
                create(broker, wanted - have)
                have, took = wanted, time.perf_counter() - began
            cells = measure(broker, topic, 4, 5, options)
            print(f"{have:<12,}{cells}{idle_ms(broker):>11.1f}{broker.memory_mib():>8.0f}{took:>10.1f}", flush=True)


def idle_ms(broker: BrokerProcess) -> float:
    """Return the CPU time of a second without requests."""
    before = broker.cpu_seconds()
    time.sleep(IDLE_S)
    return (broker.cpu_seconds() - before) / IDLE_S * 1000


def fill(broker: BrokerProcess, topic: str) -> None:
    run(broker, Load("", lambda _: b""), produce(topic, range(1), batch(90)), 0.2)


def connections(options: argparse.Namespace) -> None:
    print(f"{'connections':<12}{'Produce us':>14}{'Fetch us':>14}{'late ms':>11}{'MiB':>8}")
    with broker_process(*LISTENERS) as broker:
        topic = create(broker, 1)
        fill(broker, topic)
        for number in CONNECTIONS:
            print(f"{number:<12,}{measure(broker, topic, number, 1, options)}{broker.memory_mib():>8.0f}", flush=True)


def open_logs(_: argparse.Namespace) -> None:
    folder = tempfile.mkdtemp(prefix="sparklog-bench-")
    try:
        write_logs(folder)
        for what in ("a store that does not know them", "a store that knows them"):
            began = time.perf_counter()
            with broker_process(*LISTENERS, data=folder) as broker:
                took = time.perf_counter() - began
                print(
                    f"open {MANY:,} partitions, {LOG_BYTES / 1e9:.0f} GB, {what}: {took:.1f} s, "
                    f"{broker.cpu_seconds():.1f} s of CPU, {broker.memory_mib():.0f} MiB",
                    flush=True,
                )
    finally:
        shutil.rmtree(folder)


def write_logs(folder: str) -> None:
    """Write partitions of two segments; the first of them is a hole but for its first batch."""
    config = TopicConfig(segment_bytes=200)  # a segment for each batch
    manager = LogManager(LocalFs(), (folder,), BrokerConfig(topic_defaults=config), SystemClock())
    manager.load()
    for number in range(MANY):
        log = manager.create(TopicPartition("scale", number), config)
        for _ in range(2):
            log.append(bytearray(batch(1)), leader_epoch=0)
    manager.close()
    for number in range(MANY):
        os.truncate(f"{folder}/scale-{number}/{0:020}.log", LOG_BYTES // MANY)


def group(_: argparse.Namespace) -> None:
    with broker_process(*LISTENERS, "group.consumer.heartbeat.interval.ms=5000") as broker:
        topic = create(broker, MEMBERS)
        with connected(broker) as connection:

            def beat(**fields: Any) -> Any:
                known = {"instance_id": None, "rack_id": None, "rebalance_timeout": 300_000, "server_assignor": None}
                connection.sendall(framed(HEARTBEAT, **{**known, **fields}))
                size = SIZE.unpack(connection.recv(SIZE.size, 0x100))[0]  # MSG_WAITALL
                return read_response(*HEARTBEAT, connection.recv(size, 0x100), 1)

            def heartbeats(epochs: dict[str, int], parts: dict[str, Any], **fields: Any) -> None:
                for member, epoch in epochs.items():
                    answer = beat(
                        group_id="g", member_id=member, member_epoch=epoch, topic_partitions=parts.get(member), **fields
                    )
                    if answer.member_id:
                        epochs[member] = answer.member_epoch
                        if answer.assignment:
                            parts[member] = [
                                {"topic_id": each.topic_id, "partitions": each.partitions}
                                for each in answer.assignment.topic_partitions
                            ]

            wait_for_coordinator(lambda: beat(
                group_id="first", member_id="m", member_epoch=0, subscribed_topic_names=(topic,), topic_partitions=()
            ))  # fmt: skip
            lag = Lag()
            epochs: dict[str, int] = {}
            parts: dict[str, Any] = {}
            before, began = broker.cpu_seconds(), time.perf_counter()
            for number in range(MEMBERS):
                new = {f"member-{number}": 0}
                heartbeats(new, parts := {**parts, f"member-{number}": ()}, subscribed_topic_names=(topic,))
                epochs.update(new)
            told(f"join of {MEMBERS:,} members", broker, before, began, MEMBERS, lag)
            before, began, rounds = broker.cpu_seconds(), time.perf_counter(), 0
            while any(owned(each) != 1 for each in parts.values()):
                heartbeats(epochs, parts, subscribed_topic_names=None)
                rounds += 1
            told(f"until each has its partition, {rounds} rounds", broker, before, began, rounds * MEMBERS, lag)
            before, began = broker.cpu_seconds(), time.perf_counter()
            for _ in range(3):
                heartbeats(epochs, {}, subscribed_topic_names=None)
            told("heartbeats of a settled group", broker, before, began, 3 * MEMBERS, lag)


def owned(parts: Any) -> int:
    return sum(len(each["partitions"]) for each in parts)


def told(what: str, broker: BrokerProcess, before: float, began: float, requests: int, lag: Lag) -> None:
    cpu, took = broker.cpu_seconds() - before, time.perf_counter() - began
    print(f"{what:<44}{took:>7.1f} s{cpu / requests * 1e6:>9.0f} us each{lag.p99_ms():>8.1f} ms late", flush=True)


def wait_for_coordinator(ask: Callable[[], Any]) -> None:
    until = time.perf_counter() + TIMEOUT_S
    while ask().error_code and time.perf_counter() < until:
        time.sleep(EVERY_S)


def failover(_: argparse.Namespace) -> None:
    settings = (f"cluster.store.session.timeout.ms={SESSION_MS}", "default.replication.factor=2")
    with cluster(BROKERS, [], *settings) as brokers:
        began = time.perf_counter()
        create(brokers[0], MANY, 2)
        wait_for(lambda: leaderless(brokers[0]) == 0)
        print(f"create {MANY:,} partitions of 2 replicas: {time.perf_counter() - began:.1f} s", flush=True)
        admin = admin_of(brokers[0])
        controller = admin.describe_cluster().result(TIMEOUT_S).controller
        victim = next(each for each in brokers if each.kafka == f"{controller.host}:{controller.port}")
        asked = next(each for each in brokers if each is not victim)
        before = sum(each.cpu_seconds() for each in brokers if each is not victim)
        os.kill(victim.pid, 9)
        began = time.perf_counter()
        wait_for(lambda: dead_leaders(asked, controller.id) == 0)
        took = time.perf_counter() - began
        cpu = sum(each.cpu_seconds() for each in brokers if each is not victim) - before
        print(
            f"failover of the controller and {MANY // BROKERS:,} leaderships: {took:.1f} s, of which the session "
            f"time-out is {SESSION_MS / 1000:.0f} s; {cpu:.1f} s of CPU of the others",
            flush=True,
        )


def replication(options: argparse.Namespace) -> None:
    print(f"{'partitions':<12}{'CPU us':>14}{'latency ms':>14}{'idle ms/s':>11}")
    with cluster(2, [], "default.replication.factor=2", "min.insync.replicas=2") as brokers:
        topic = create(brokers[0], 1, 2)
        wait_for(lambda: leaderless(brokers[0]) == 0)
        leader = leaders_of(brokers, topic)[0]
        frame, have = produce(topic, range(1), batch(1)), 1
        for wanted in PARTITIONS:
            if wanted > have:
                create(brokers[0], wanted - have, 2)
                wait_for(lambda: leaderless(brokers[0]) == 0)
                have = wanted
            wait_for(lambda: lagging(brokers[0]) == 0)
            before = sum(each.cpu_seconds() for each in brokers)
            time.sleep(IDLE_S)
            idle = (sum(each.cpu_seconds() for each in brokers) - before) / IDLE_S
            before = sum(each.cpu_seconds() for each in brokers)
            began = time.perf_counter()
            rate = run(leader, Load("", lambda _: frame, 1, 1), frame, options.seconds).requests_per_s
            took = time.perf_counter() - began
            cpu = (sum(each.cpu_seconds() for each in brokers) - before - idle * took) / took / rate
            print(f"{have:<12,}{cpu * 1e6:>14.1f}{1000 / rate:>14.2f}{idle * 1000:>11.1f}", flush=True)


def lagging(broker: BrokerProcess) -> int:
    return sum(len(part.isrs) < len(part.replicas) for part in all_partitions(broker))


def leaderless(broker: BrokerProcess) -> int:
    return sum(part.leader < 0 for part in all_partitions(broker))


def dead_leaders(broker: BrokerProcess, dead: int) -> int:
    return sum(part.leader in (-1, dead) for part in all_partitions(broker))


def all_partitions(broker: BrokerProcess) -> Iterator[Any]:
    """Yield what a broker knows of each partition of the cluster."""
    for topic in admin_of(broker).list_topics(timeout=TIMEOUT_S).topics.values():
        yield from topic.partitions.values()


def wait_for(is_so: Callable[[], bool]) -> None:
    until = time.perf_counter() + 2 * TIMEOUT_S
    while not is_so():
        if time.perf_counter() > until:
            raise RuntimeError("this does not end")
        time.sleep(EVERY_S)


PARTS = {
    "partitions": partitions,
    "connections": connections,
    "open": open_logs,
    "group": group,
    "replication": replication,
    "failover": failover,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(PARTS), choices=list(PARTS), help="default: all")
    parser.add_argument("--seconds", type=float, default=1.5, help="for each figure and round")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for part in options.only:
        PARTS[part](options)
        print()


if __name__ == "__main__":
    main()
