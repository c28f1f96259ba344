"""What a request costs the broker where the broker is the limit:  python -m bench.requests [--help]

Prebuilt frames of Kafka's protocol go over raw sockets, mostly 4 connections with 5 requests in flight each, so that
the client does next to nothing. With --kafka HOST:PORT and --kafka-pid PID of an Apache Kafka on this machine, each
kind of request goes to both in turns, --rounds times. The broker's CPU time of a request counts, with the kernel's
part, the least of all rounds: other work on the machine only adds to it. Rates depend on the machine, and on what the
client takes of it.
"""

from __future__ import annotations

import argparse
import selectors
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple
from uuid import uuid4

from confluent_kafka.admin import AdminClient, NewTopic

from bench.frames import SIZE, connected, framed
from bench.harness import BrokerProcess, broker_process
from sparklog.records.records import Record, write_records

PRODUCE, FETCH, LIST_OFFSETS, METADATA = (0, 9), (1, 11), (2, 6), (3, 9)
MANY = 100
"""Partitions of the wide topic."""
READ_BYTES = 1 << 20
TIMEOUT_S = 60
WAITS_TO_SEND = selectors.EVENT_READ | selectors.EVENT_WRITE


class Topics(NamedTuple):
    """The topics of one broker."""

    one: str
    """With one partition."""
    wide: str


class Load(NamedTuple):
    """One kind of request."""

    title: str
    frame: Callable[[Topics], bytes]
    connections: int = 4
    in_flight: int = 5


class Measured(NamedTuple):
    cpu_us: float
    """Of the broker, for a request."""
    requests_per_s: float


class Pipelined:
    """A connection that keeps some requests in flight."""

    def __init__(self, connection: socket.socket, frame: bytes, in_flight: int) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._frame = memoryview(frame)
        self._unsent = self._frame[:0]
        self._may_send = in_flight
        self._head = b""
        self._left = 0
        self._buffer = memoryview(bytearray(READ_BYTES))

    def send(self) -> bool:
        """Send what may be in flight. Return False if the socket has not taken all of it."""
        while self._unsent or self._may_send:
            if not self._unsent:
                self._unsent = self._frame
                self._may_send -= 1
            try:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
            except BlockingIOError:
                return False
        return True

    def receive(self) -> int:
        """Return the number of answers that have arrived."""
        answers = 0
        try:
            size = self._socket.recv_into(self._buffer)
        except BlockingIOError:
            return 0
        if not size:
            raise ConnectionError("the broker has closed the connection")
        at = 0
        while at < size:
            if not self._left:
                part = bytes(self._buffer[at : min(size, at + SIZE.size - len(self._head))])
                self._head += part
                at += len(part)
                if len(self._head) < SIZE.size:
                    break
                self._left, self._head = SIZE.unpack(self._head)[0], b""
            taken = min(self._left, size - at)
            self._left -= taken
            at += taken
            answers += not self._left
        self._may_send += answers
        return answers


def run(broker: BrokerProcess, load: Load, frame: bytes, seconds: float) -> Measured:
    """Send requests for some seconds, after a while without measurement. Raises RuntimeError if none is answered."""
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for _ in range(load.connections):
            connection = stack.enter_context(connected(broker))
            selector.register(connection, WAITS_TO_SEND, Pipelined(connection, frame, load.in_flight))
        answers_within(selector, seconds / 5)
        before, began = broker.cpu_seconds(), time.perf_counter()
        answers = answers_within(selector, seconds)
        took = time.perf_counter() - began
        if not answers:
            raise RuntimeError(f"no answer of {broker.kafka} within {took:.0f} s ({load.title}): its disk may stall")
        return Measured((broker.cpu_seconds() - before) / answers * 1e6, answers / took)


def answers_within(selector: selectors.BaseSelector, seconds: float) -> int:
    """Keep all connections busy for some seconds and return the number of answers that have arrived."""
    answers, until = 0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        for key, _ in selector.select(1):
            answers += key.data.receive()
            events = selectors.EVENT_READ if key.data.send() else WAITS_TO_SEND
            if events != key.events:
                selector.modify(key.fileobj, events, key.data)
    return answers


def batch(records: int) -> bytes:
    """Return a batch of records of 100 bytes."""
    now_ms = int(time.time() * 1000)
    return bytes(write_records([Record(offset=n, timestamp_ms=now_ms, value=b"v" * 100) for n in range(records)]))


def produce(topic: str, partitions: range, records: bytes) -> bytes:
    data = [{"index": number, "records": records} for number in partitions]
    return framed(PRODUCE, acks=-1, timeout=30_000, topic_data=[{"name": topic, "partition_data": data}])


def fetch(topic: str, partitions: range, size: int) -> bytes:
    parts = [{"partition": number, "fetch_offset": 0, "partition_max_bytes": size} for number in partitions]
    topics = [{"topic": topic, "partitions": parts}]
    return framed(FETCH, max_wait=500, min_bytes=1, max_bytes=1 << 26, topics=topics, forgotten_topics_data=[])


def metadata(topic: str) -> bytes:
    return framed(
        METADATA,
        topics=[{"name": topic}],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


def list_offsets(topic: str) -> bytes:
    parts = [{"partition_index": 0, "timestamp": -1}]
    return framed(LIST_OFFSETS, replica_id=-1, isolation_level=0, topics=[{"name": topic, "partitions": parts}])


def loads() -> list[Load]:
    one, ten_kb, one_kb, one_mb = batch(1), batch(90), batch(8), batch(9_000)
    first, many = range(1), range(MANY)
    return [
        Load("Produce, a batch of 10 KB", lambda topics: produce(topics.one, first, ten_kb)),
        Load("Produce, the same over 64 connections", lambda topics: produce(topics.one, first, ten_kb), 64, 2),
        Load("Produce, one record", lambda topics: produce(topics.one, first, one)),
        Load(f"Produce, {MANY} partitions, 1 KB each", lambda topics: produce(topics.wide, many, one_kb)),
        Load("Produce, a batch of 1 MB", lambda topics: produce(topics.one, first, one_mb)),
        Load("Fetch of 1 MB", lambda topics: fetch(topics.one, first, 1 << 20), in_flight=1),
        Load("Fetch of 16 KB", lambda topics: fetch(topics.one, first, 16 << 10)),
        Load(f"Fetch, {MANY} partitions, 8 KB each", lambda topics: fetch(topics.wide, many, 8 << 10)),
        Load("Metadata, a topic of 1 partition", lambda topics: metadata(topics.one)),
        Load(f"Metadata, a topic of {MANY} partitions", lambda topics: metadata(topics.wide)),
        Load("ListOffsets", lambda topics: list_offsets(topics.one)),
    ]


def make_topics(broker: BrokerProcess) -> Topics:
    topics = Topics(f"one-{uuid4().hex[:8]}", f"wide-{uuid4().hex[:8]}")
    admin: Any = AdminClient({"bootstrap.servers": broker.kafka})
    for made in admin.create_topics([NewTopic(topics.one, 1, 1), NewTopic(topics.wide, MANY, 1)]).values():
        made.result(TIMEOUT_S)
    return topics


def compare(brokers: Mapping[str, BrokerProcess], options: argparse.Namespace) -> None:
    topics = {name: make_topics(broker) for name, broker in brokers.items()}
    for load in loads():
        found: dict[str, list[Measured]] = {name: [] for name in brokers}
        if options.only in load.title:
            frames = {name: load.frame(made) for name, made in topics.items()}
            for _ in range(options.rounds):
                for name, broker in brokers.items():
                    found[name].append(run(broker, load, frames[name], options.seconds))
            least = {name: min(each.cpu_us for each in measured) for name, measured in found.items()}
            rate = {name: max(each.requests_per_s for each in measured) for name, measured in found.items()}
            cells = "".join(f"{rate[name]:>12,.0f}/s {least[name]:>9,.1f} us" for name in brokers)
            ratio = f"{least['sparklog'] / least['kafka']:>8.2f}" if "kafka" in least else ""
            print(f"{load.title:<40}{cells}{ratio}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka", metavar="HOST:PORT")
    parser.add_argument("--kafka-pid", type=int)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each kind, round and broker")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", metavar="WORD", help="kinds with this in their title")
    options = parser.parse_args()
    with broker_process("listeners=PLAINTEXT://127.0.0.1:0") as broker:
        brokers = {"sparklog": broker}
        if options.kafka:
            brokers["kafka"] = BrokerProcess(options.kafka_pid, "", options.kafka)
        print(f"{'':<40}" + "".join(f"{name:>26}" for name in brokers) + ("   ratio" if len(brokers) > 1 else ""))
        compare(brokers, options)


if __name__ == "__main__":
    main()
