"""Programs that copy numbers from one topic into another, and are killed; and what readers of committed records see."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Producer as KafkaProducer

from support.patience import PATIENCE_S

TESTS = Path(__file__).parents[2]


class Pipeline:
    """A program, started again whenever it ends; it prints a line for each transaction or batch that it commits."""

    def __init__(self, command: list[str]) -> None:
        self.copied = 0
        """Lines printed, by all its lives."""
        self.lines: list[str] = []
        self._command = command
        self._is_over = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Pipeline:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.kill()
        self._thread.join(PATIENCE_S)

    def kill(self) -> None:
        """Kill the program, with the processes that it has started and that are still in its group."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    def _run(self) -> None:
        while not self._is_over.is_set():
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, text=True, cwd=TESTS, start_new_session=True
            )
            if self._is_over.is_set():
                self.kill()
            assert self._process.stdout is not None
            for line in self._process.stdout:
                self.lines.append(line.strip())
                self.copied += 1
            self._process.wait()


def python_program(name: str) -> list[str]:
    """How a program of this folder starts."""
    return [sys.executable, "-m", f"support.clients.{name}"]


class CommittedReader:
    """Reads a topic from its beginning, as a reader of committed records, and counts each value."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.seen: Counter[int] = Counter()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "reconnect.backoff.max.ms": 200,
                "error_cb": lambda _: None,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])

    def read(self) -> int:
        """Read what there is, and return how many values it has seen."""
        for message in self._consumer.consume(500, timeout=0.5):
            if message.error() is None:
                self.seen[int(message.value())] += 1
        twice = [value for value, count in self.seen.items() if count > 1]
        assert not twice, f"seen twice: {twice[:10]}"
        return len(self.seen)

    def close(self) -> None:
        self._consumer.close()


def feed(bootstrap: str, topic: str, partitions: int, numbers: range) -> None:
    """Write numbers to the partitions in turn."""
    producer = KafkaProducer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "error_cb": lambda _: None})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(PATIENCE_S) == 0
