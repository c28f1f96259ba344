"""A Java consumer and ours in one group: either may lead it, whatever the assignor."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparklog.client import Admin, Consumer, Producer
from support.names import unique
from support.patience import PATIENCE_S, wait_until
from support.processes.broker import BrokerProcess
from support.processes.java import kafka_command

PARTITIONS, RECORDS = 6, 300
JAVA_NAMES = {
    "range": "RangeAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
pytestmark = pytest.mark.jvm


class JavaMember:
    """A VerifiableConsumer, which prints what it is given and what it reads."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.partitions: set[int] = set()
        self.read: list[tuple[int, int]] = []
        self.said: list[str] = []
        """Lines that tell of no event: its log."""
        self._process = process
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def update(self) -> None:
        """Take in what it has printed since."""
        while not self._events.empty():
            event = self._events.get()
            match event["name"]:
                case "partitions_assigned":
                    self.partitions |= {item["partition"] for item in event["partitions"]}
                case "partitions_revoked":
                    self.partitions -= {item["partition"] for item in event["partitions"]}
                case "record_data":
                    self.read.append((event["partition"], event["offset"]))

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)
        self._thread.join(PATIENCE_S)

    def _listen(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith("{"):
                self._events.put(json.loads(line))
            else:
                self.said.append(line)


@contextmanager
def java_member(broker: BrokerProcess, topic: str, strategy: str, folder: Path) -> Iterator[JavaMember]:
    settings = folder / "consumer.properties"
    settings.write_text("heartbeat.interval.ms=100\n")  # by heartbeats it hears of others; by default every 3 s
    command = kafka_command("org.apache.kafka.tools.VerifiableConsumer", "--command-config", str(settings))
    command += [
        "--bootstrap-server",
        broker.kafka,
        "--topic",
        topic,
        "--group-id",
        topic,
        "--group-protocol",
        "classic",
    ]
    command += ["--reset-policy", "earliest", "--enable-autocommit", "--verbose"]
    command += ["--assignment-strategy", f"org.apache.kafka.clients.consumer.{JAVA_NAMES[strategy]}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        member = JavaMember(process)
        try:
            yield member
        finally:
            member.stop()


@contextmanager
def our_member(broker: BrokerProcess, topic: str, strategy: str) -> Iterator[Consumer]:
    with Consumer(
        bootstrap_servers=broker.grpc,
        group_id=topic,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=100,
        partition_assignment_strategy=strategy,
    ) as consumer:
        consumer.subscribe([topic])
        yield consumer


@pytest.mark.parametrize("strategy", JAVA_NAMES)
@pytest.mark.parametrize("ours_leads", [True, False])
def test_a_java_consumer_and_ours_share_a_group(
    broker: BrokerProcess, admin: Admin, tmp_path: Path, strategy: str, ours_leads: bool
) -> None:
    topic = unique("java")
    admin.create_topic(topic, partitions=PARTITIONS)
    seen: set[tuple[int, int]] = set()

    def settle(ours: Consumer, theirs: JavaMember, share: int, count: int) -> None:
        """Poll until ours has that share, the other has the rest, and so many records are read."""

        def has_settled() -> bool:
            seen.update((record.partition, record.offset) for record in ours.poll(50))
            theirs.update()
            seen.update(theirs.read)
            own = {item.partition for item in ours.assignment()}
            return len(own) == share and theirs.partitions == set(range(PARTITIONS)) - own and len(seen) == count

        def tell() -> str:
            have = f"ours has {ours.assignment()}, theirs {theirs.partitions}; {len(seen)} records are read"
            return "\n".join([have, *theirs.said[-50:], broker.log[-5_000:]])

        wait_until(has_settled, f"ours has {share} partitions and {count} records are read", tell=tell, every_s=0)

    fill(broker, topic)
    if ours_leads:
        with our_member(broker, topic, strategy) as ours:
            while len(ours.assignment()) < PARTITIONS:
                seen.update((record.partition, record.offset) for record in ours.poll(50))
            with java_member(broker, topic, strategy, tmp_path) as theirs:
                settle(ours, theirs, 3, RECORDS)
            theirs.partitions.clear()
            fill(broker, topic)
            settle(ours, theirs, PARTITIONS, 2 * RECORDS)
    else:
        with java_member(broker, topic, strategy, tmp_path) as theirs:

            def has_all(theirs: JavaMember = theirs) -> bool:
                theirs.update()
                return len(theirs.partitions) == PARTITIONS

            wait_until(has_all, "the Java consumer has all partitions", tell=lambda: "".join(theirs.said), every_s=0.05)
            with our_member(broker, topic, strategy) as ours:
                settle(ours, theirs, 3, RECORDS)
                fill(broker, topic)
                settle(ours, theirs, 3, 2 * RECORDS)


def fill(broker: BrokerProcess, topic: str) -> None:
    with Producer(bootstrap_servers=broker.grpc, linger_ms=1) as producer:
        for number in range(RECORDS):
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
