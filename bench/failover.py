"""How long a partition cannot be written to when its leader dies:  python -m bench.failover [--help]

Three brokers, one topic with three replicas (min.insync.replicas 2), one idempotent producer with acks=all that sends
a record every few milliseconds. The leader is killed (SIGKILL), and the clock runs until a record that was sent later
is acknowledged. Then the broker is started again, and the next round waits until all replicas are in sync. The first
record through a new leader needs four steps: detection of the death (the session time-out, most of the total), an
election, notice to the new leader, and the client's own look-up.

    sparklog     `sparklog up` three times over one SQLite store; librdkafka, and sparklog's own producer
    Kafka        --kafka: Apache Kafka 4.3.1 (`make test` fetches its jars), KRaft, three processes that are each
                 broker and controller; librdkafka

Each is measured with its own defaults, and with a session time-out of two seconds.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from sparklog.client import Producer

JARS = Path(__file__).parents[1] / ".cache" / "kafka"
JAVA = ["java", "-Xmx384M", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", f"{JARS}/*"]
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
TOPIC = "failover"
EVERY_S = 0.005
PATIENCE_S = 120
BROKERS = (1, 2, 3)
Send = Callable[[], float]
"""Sends a record, and returns the time at which the last acknowledged record was sent; 0 if there is none."""


class Cluster(ABC):
    """Three broker processes in a folder."""

    name: str

    def __init__(self, folder: Path, session_ms: int | None) -> None:
        self.folder = folder
        self.session_ms = session_ms
        self.ports = {number: free_port() for number in BROKERS}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def kafka(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def start(self, number: int) -> None:
        with (self.folder / f"log-{number}").open("ab") as log:
            self._processes[number] = subprocess.Popen(self.command(number), stdout=log, stderr=log)

    def kill(self, number: int) -> None:
        self._processes[number].kill()
        self._processes[number].wait()

    def stop(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    @abstractmethod
    def command(self, number: int) -> list[str]:
        """Return the command that starts one broker."""


class Sparklog(Cluster):
    name = "sparklog"

    def __init__(self, folder: Path, session_ms: int | None) -> None:
        super().__init__(folder, session_ms)
        self.grpc = {number: free_port() for number in BROKERS}

    def command(self, number: int) -> list[str]:
        settings = {
            "broker.id": number,
            "cluster.store": self.folder / "cluster.sqlite",
            "log.dirs": self.folder / f"data-{number}",
            "grpc.listener": f"127.0.0.1:{self.grpc[number]}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[number]}",
            "min.insync.replicas": 2,
        }
        if self.session_ms:
            settings["cluster.store.session.timeout.ms"] = self.session_ms
        set_them = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        return [sys.executable, "-m", "sparklog.cli.up", "--log-level", "warning", *set_them]


class Kafka(Cluster):
    name = "Apache Kafka"

    def __init__(self, folder: Path, session_ms: int | None) -> None:
        super().__init__(folder, session_ms)
        controllers = {number: free_port() for number in BROKERS}
        for number in BROKERS:
            settings = {
                "process.roles": "broker,controller",
                "node.id": number,
                "controller.quorum.voters": ",".join(f"{each}@127.0.0.1:{port}" for each, port in controllers.items()),
                "controller.listener.names": "CONTROLLER",
                "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[number]},CONTROLLER://127.0.0.1:{controllers[number]}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "log.dirs": folder / f"data-{number}",
                "min.insync.replicas": 2,
            }
            if session_ms:
                settings |= {"broker.session.timeout.ms": session_ms, "broker.heartbeat.interval.ms": session_ms // 4}
            file = folder / f"{number}.properties"
            file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
            format_it = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file)]
            subprocess.run([*JAVA, *format_it], check=True, capture_output=True)

    def command(self, number: int) -> list[str]:
        return [*JAVA, "kafka.Kafka", str(self.folder / f"{number}.properties")]


def librdkafka_writer(cluster: Cluster) -> Iterator[Send]:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.kafka, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
    )
    acknowledged = [0.0]

    def send() -> float:
        sent = time.monotonic()

        def told(error: Any, _: Any) -> None:
            if error is None:
                acknowledged.append(sent)

        producer.produce(TOPIC, b"x", partition=0, on_delivery=told)
        producer.poll(0)
        return acknowledged[-1]

    yield send
    producer.flush(PATIENCE_S)


def grpc_writer(cluster: Cluster) -> Iterator[Send]:
    assert isinstance(cluster, Sparklog)
    bootstrap = ",".join(f"127.0.0.1:{port}" for port in cluster.grpc.values())
    acknowledged = [0.0]
    with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:

        def send() -> float:
            sent = time.monotonic()

            def told(_: Any, error: Any) -> None:
                if error is None:
                    acknowledged.append(sent)

            producer.send(TOPIC, b"x", partition=0, on_delivery=told)
            return acknowledged[-1]

        yield send


def measure(cluster: Cluster, writer: Callable[[Cluster], Iterator[Send]], runs: int) -> None:
    """Print one line: seconds from the death of the leader to the acknowledgement of a record sent later."""
    admin = AdminClient({"bootstrap.servers": cluster.kafka, "log_level": 0})
    found: list[float] = []
    for _ in range(runs):
        victim = wait_for_leader(admin)
        with contextmanager(writer)(cluster) as send:
            wait_until(lambda: send() > 0)
            cluster.kill(victim)
            died = time.monotonic()
            wait_until(lambda died=died: send() > died)
            found.append(time.monotonic() - died)
        cluster.start(victim)
    wait_for_leader(admin)
    kind = "librdkafka" if writer is librdkafka_writer else "sparklog's producer"
    session = f"{cluster.session_ms} ms" if cluster.session_ms else "default"
    spread = f"{min(found):.2f} to {max(found):.2f}"
    print(
        f"{cluster.name:<13} {kind:<20} session {session:<8} median {statistics.median(found):>6.2f} s ({spread})",
        flush=True,
    )


def wait_for_leader(admin: AdminClient) -> int:
    """Return the partition's leader, once all replicas are in sync."""
    leader = -1

    def in_sync() -> bool:
        nonlocal leader
        try:
            partition = admin.list_topics(TOPIC, timeout=5).topics[TOPIC].partitions[0]
        except (confluent_kafka.KafkaException, KeyError):
            return False
        leader = partition.leader
        return len(partition.isrs) == len(BROKERS) and leader in BROKERS

    wait_until(in_sync, every_s=0.1)
    return leader


def create_topic(admin: AdminClient) -> None:
    """Create the topic; retry until there are enough brokers."""

    def created() -> bool:
        future: Any = admin.create_topics([NewTopic(TOPIC, 1, len(BROKERS))], request_timeout=5)[TOPIC]
        try:
            future.result()
        except confluent_kafka.KafkaException as error:
            return bool(error.args[0].code() == confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS)
        return True

    wait_until(created, every_s=0.5)


def wait_until(is_true: Callable[[], bool], *, every_s: float = EVERY_S) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_true():
        if time.monotonic() > deadline:
            raise RuntimeError(f"nothing for {PATIENCE_S} s")
        time.sleep(every_s)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="deaths for each line (3)")
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka too")
    options = parser.parse_args()
    kinds: list[type[Cluster]] = [Sparklog, Kafka] if options.kafka else [Sparklog]
    for session_ms in (None, 2_000):
        for kind in kinds:
            folder = Path(tempfile.mkdtemp(prefix="sparklog-bench-"))
            cluster = kind(folder, session_ms)
            try:
                for number in BROKERS:
                    cluster.start(number)
                create_topic(AdminClient({"bootstrap.servers": cluster.kafka, "log_level": 0}))
                for writer in (librdkafka_writer, grpc_writer) if kind is Sparklog else (librdkafka_writer,):
                    measure(cluster, writer, options.runs)
            finally:
                cluster.stop()
                shutil.rmtree(folder)


if __name__ == "__main__":
    main()
