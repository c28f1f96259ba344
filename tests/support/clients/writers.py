"""Producers of several makes that write numbers, and remember which were acknowledged; and what must be true of a log
that they have written to.

    acknowledged   it is in the log, once, at the offset that was told (librdkafka tells none where a broker says of a
                   batch that was sent again only that it has it already)
    not            it is there once, or not at all
    order          numbers of one producer rise within a partition
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import tempfile
import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from types import TracebackType
from typing import Any

import aiokafka
import confluent_kafka
import kafka

from sparklog.client import Consumer, Producer
from support.patience import PATIENCE_MS, PATIENCE_S, wait_until
from support.processes.cluster import ClusterProcesses, partitions_of
from support.processes.java import kafka_command

TOPIC = "numbers"
PARTITIONS = 3
EVERY_S = 0.05
REQUEST_TIMEOUT_MS = 3_000
"""Shorter than by default, so that who asks a broker that is paused soon asks another."""
Acknowledged = dict[int, dict[int, int | None]]
"""For each partition, the offset of each number; None: unknown."""


class Writer(ABC):
    """Writes 0, 1, 2, … to the partitions in turn, in a thread, from `start` to `stop`."""

    name: str

    def __init__(self, cluster: ClusterProcesses) -> None:
        self.acknowledged: Acknowledged = defaultdict(dict)
        self.failures: list[str] = []
        self.sent = 0
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name=self.name)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Return once everything is acknowledged or has failed."""
        self._stop.set()
        self._thread.join(2 * PATIENCE_S)  # the clients' own time-outs, which say more, come first
        assert not self._thread.is_alive(), f"{self.name} does not end\n{self._cluster.logs}"

    def _write(self) -> None:
        try:
            self.write()
        except Exception as error:  # noqa: BLE001 - a thread of a test says what has gone wrong
            self.failures.append(repr(error))

    @abstractmethod
    def write(self) -> None:
        """Do it."""

    def _next(self) -> tuple[int, int, bytes] | None:
        """Number, partition and value; None: it is time to stop."""
        if self._stop.wait(EVERY_S):
            return None
        number = self.sent
        self.sent += 1
        return number, number % PARTITIONS, f"{self.name}:{number}".encode()


class GrpcWriter(Writer):
    name = "grpc"

    def write(self) -> None:
        options = {"request_timeout_ms": REQUEST_TIMEOUT_MS, "linger_ms": 1}
        with Producer(bootstrap_servers=self._cluster.grpc, **options) as producer:
            while following := self._next():
                number, partition, value = following
                producer.send(TOPIC, value, partition=partition, on_delivery=self._told(number, partition))

    def _told(self, number: int, partition: int) -> Any:
        def told(metadata: Any, error: Any) -> None:
            if error is None:
                self.acknowledged[partition][number] = metadata.offset
            else:
                self.failures.append(f"{number}: {error!r}")

        return told


class LibrdkafkaWriter(Writer):
    name = "librdkafka"

    def write(self) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._cluster.kafka,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "socket.timeout.ms": REQUEST_TIMEOUT_MS,
                "request.timeout.ms": REQUEST_TIMEOUT_MS,
                "topic.metadata.refresh.interval.ms": 1_000,
                "reconnect.backoff.max.ms": 500,
                "error_cb": lambda error: self.failures.append(str(error)) if error.fatal() else None,
            }
        )
        while following := self._next():
            number, partition, value = following
            producer.produce(TOPIC, value, partition=partition, on_delivery=self._told(number))
            producer.poll(0)
        if left := producer.flush(PATIENCE_S):
            self.failures.append(f"{left} records were not acknowledged")

    def _told(self, number: int) -> Any:
        def told(error: Any, message: Any) -> None:
            if error is None:
                self.acknowledged[message.partition()][number] = message.offset()
            else:
                self.failures.append(f"{number}: {error}")

        return told


class KafkaPythonWriter(Writer):
    name = "kafka-python"

    def write(self) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self._cluster.kafka.split(","),
            enable_idempotence=True,
            acks="all",
            linger_ms=1,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            metadata_max_age_ms=1_000,
        )
        while following := self._next():
            number, partition, value = following
            future = producer.send(TOPIC, value, partition=partition)
            future.add_callback(self._written, number)
            future.add_errback(lambda error, number=number: self.failures.append(f"{number}: {error!r}"))
        producer.flush(PATIENCE_S)
        producer.close()

    def _written(self, number: int, metadata: Any) -> None:
        self.acknowledged[metadata.partition][number] = metadata.offset


class AiokafkaWriter(Writer):
    name = "aiokafka"

    def write(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self._cluster.kafka,
            enable_idempotence=True,
            acks="all",
            linger_ms=1,
            request_timeout_ms=PATIENCE_MS,  # to aiokafka also the time in which a leader must be elected
            metadata_max_age_ms=1_000,
        )
        await producer.start()
        waiting: set[asyncio.Task[None]] = set()
        while following := await asyncio.to_thread(self._next):
            number, partition, value = following
            future = await producer.send(TOPIC, value, partition=partition)
            task = asyncio.create_task(self._wait(future, number))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
        await asyncio.gather(*waiting)
        await producer.stop()

    async def _wait(self, future: Any, number: int) -> None:
        try:
            metadata = await future
        except Exception as error:  # noqa: BLE001 - whatever it is, the test says so
            self.failures.append(f"{number}: {error!r}")
        else:
            self.acknowledged[metadata.partition][number] = metadata.offset


class JavaWriter(Writer):
    """Kafka's own VerifiableProducer, with its retries switched on; it writes bare numbers."""

    name = "java"

    def write(self) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".properties") as config:
            config.write(
                "enable.idempotence=true\nretries=2147483647\nlinger.ms=1\n"
                f"request.timeout.ms={REQUEST_TIMEOUT_MS}\nmetadata.max.age.ms=1000\n"
                "partitioner.class=org.apache.kafka.clients.producer.RoundRobinPartitioner\n"
            )
            config.flush()
            producer = subprocess.Popen(
                kafka_command(
                    "org.apache.kafka.tools.VerifiableProducer", "--bootstrap-server", self._cluster.kafka,
                    "--topic", TOPIC, "--throughput", str(int(1 / EVERY_S)), "--command-config", config.name,
                ),
                stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            stopping = threading.Thread(target=lambda: (self._stop.wait(), producer.terminate()))
            stopping.start()
            assert producer.stdout
            for line in producer.stdout:
                self._take(json.loads(line))
            producer.wait(PATIENCE_S)
            if not self._stop.is_set():
                self.failures.append("the producer has ended by itself")
                self._stop.set()
            stopping.join()

    def _take(self, told: dict[str, Any]) -> None:
        match told["name"]:
            case "producer_send_success":
                self.acknowledged[told["partition"]][int(told["value"])] = told["offset"]
                self.sent = max(self.sent, int(told["value"]) + 1)
            case "producer_send_error":
                self.failures.append(str(told))


class Writing:
    """Several writers, from the beginning of a `with` block to its end; then all is checked."""

    def __init__(self, cluster: ClusterProcesses, *kinds: type[Writer]) -> None:
        self.writers = [kind(cluster) for kind in kinds]
        self._cluster = cluster

    def __enter__(self) -> Writing:
        for writer in self.writers:
            writer.start()
        self.wait_for_progress()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self.writers:
            writer.stop()
        if error is None:
            self.check()

    def wait_for_progress(self) -> None:
        """Until each writer has had something acknowledged, in each partition, that it has sent after now."""
        sent = [writer.sent for writer in self.writers]
        for writer, before in zip(self.writers, sent, strict=True):
            for partition in range(PARTITIONS):

                def has_gone_on(writer: Writer = writer, before: int = before, partition: int = partition) -> bool:
                    assert not writer.failures, f"{writer.name}: {writer.failures[:3]}\n{self._cluster.logs}"
                    return max(tuple(writer.acknowledged[partition]), default=-1) >= before

                what = f"number {before} or more of {writer.name} in partition {partition} is acknowledged"
                wait_until(has_gone_on, what, tell=lambda: self._cluster.logs)

    def check(self) -> None:
        found = self._read()
        for writer in self.writers:
            assert not writer.failures, f"{writer.name}: {writer.failures[:3]} of {len(writer.failures)}"
            for partition in range(PARTITIONS):
                numbers = [number for name, number, _ in found[partition] if name == writer.name]
                offsets = {number: offset for name, number, offset in found[partition] if name == writer.name}
                where = f"{writer.name}, partition {partition}"
                assert len(numbers) == len(offsets), f"{where}: twice: {_repeated(numbers)}"
                assert numbers == sorted(numbers), f"{where}: out of order"
                told = writer.acknowledged[partition]
                wrong = {number: at for number, at in told.items() if offsets.get(number) is None}
                wrong |= {number: at for number, at in told.items() if at is not None and offsets.get(number) != at}
                assert not wrong, f"{where}: acknowledged, and not there: {dict(list(wrong.items())[:5])}"

    def _read(self) -> dict[int, list[tuple[str, int, int]]]:
        """Every record: who wrote it, which number it is, its offset."""
        found: dict[int, list[tuple[str, int, int]]] = {number: [] for number in range(PARTITIONS)}
        with Consumer(bootstrap_servers=self._cluster.grpc, auto_offset_reset="earliest") as consumer:
            places = partitions_of(TOPIC, PARTITIONS)
            consumer.assign(places)
            ends = consumer.end_offsets(places)

            def is_at_the_ends() -> bool:
                for record in consumer.poll(1_000):
                    name, _, number = (record.value or b"").decode().rpartition(":")
                    found[record.partition].append((name or JavaWriter.name, int(number), record.offset))
                return all(consumer.position(place) >= ends[place] for place in places)

            wait_until(is_at_the_ends, f"all records are read, to {ends}", tell=lambda: self._cluster.logs)
        return found


def _repeated(numbers: list[int]) -> list[int]:
    seen: set[int] = set()
    return [number for number in numbers if number in seen or seen.add(number)][:5]  # type: ignore[func-returns-value]
