"""The log of slow requests on both listeners: its fields, and the waits that do not count."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest

from sparklog.base.fs import Buffer, LocalFile
from sparklog.broker.apis import fetch
from sparklog.broker.slow_requests import LINES_PER_S, SlowRequests
from sparklog.runtime import remote_waits
from sparklog.server.kafka import connection
from sparklog.testing import RunningBroker, start_broker
from sparklog.v1 import admin_pb2, log_pb2
from support.kafka.connection import Wire
from support.patience import PATIENCE_MS, PATIENCE_S, wait_until

PRODUCE, FETCH = 0, 1
SLOW_MS = 600_000
"""Longer than any test takes: only a clock that the test moves gets there."""
POLL_MS = 500_000
FIGURE = r"\d+\.\d ms"


class Clock:
    """The clock of request times, which the test advances."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return monotonic() + self.ahead_s

    def move_on(self) -> None:
        self.ahead_s += 2 * SLOW_MS / 1000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(connection, "monotonic", clock)
    monkeypatch.setattr(remote_waits, "monotonic", clock)
    return clock


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> threading.Event:
    """While the event is set, writes are slow."""
    is_slow, append = threading.Event(), LocalFile.append

    def append_slowly(self: LocalFile, data: Buffer) -> None:
        append(self, data)
        if is_slow.is_set():
            clock.move_on()

    monkeypatch.setattr(LocalFile, "append", append_slowly)
    return is_slow


@pytest.fixture
def broker(clock: Clock, caplog: pytest.LogCaptureFixture) -> Iterator[RunningBroker]:
    caplog.set_level(logging.INFO, "sparklog.broker.slow_requests")
    with start_broker(kafka=True, request_log_slow_ms=SLOW_MS, cluster_history_enable=False) as broker:
        yield broker


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "sparklog.broker.slow_requests"]


def produce_over_the_wire(wire: Wire, data: bytes) -> Any:
    parts = [{"index": 0, "records": bytes(data)}]
    topics = [{"name": "t", "partition_data": parts}]
    return wire.send(PRODUCE, 9, transactional_id=None, acks=-1, timeout=PATIENCE_MS, topic_data=topics)


def fetch_over_the_wire(wire: Wire, offset: int) -> Any:
    part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
    return wire.send(
        FETCH, 4, replica_id=-1, max_wait=POLL_MS, min_bytes=1, max_bytes=1 << 20, isolation_level=0,
        topics=[{"topic": "t", "partitions": [part]}],
    )  # fmt: skip


def test_a_line_names_the_request_the_client_and_the_stages(
    broker: RunningBroker, slow_disk: threading.Event, connect, batch, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect(broker)
    client.produce("t", batch([b"fast"]))
    with Wire(broker.node.kafka_addresses["PLAINTEXT"]) as wire:
        produce_over_the_wire(wire, batch([b"fast"]))
        assert lines(caplog) == []
        slow_disk.set()
        produce_over_the_wire(wire, batch([b"slow"]))
    wait_until(lambda: lines(caplog), "the request is logged")
    part = log_pb2.PartitionProduce(topic="t", partition=0, batches=bytes(batch([b"slow"])))
    request = log_pb2.ProduceRequest(partitions=[part])
    client.log.Produce(request, metadata=[("client-id", "mine")])
    assert len(list(client.log.ProduceStream(iter([request])))) == 1
    wire_line, unary, stream = wait_until(lambda: lines(caplog)[2:] and lines(caplog), "all three are logged")
    assert re.fullmatch(
        "slow request: Produce version 9 of client 'wire', User:ANONYMOUS at 127.0.0.1: "
        rf"queue {FIGURE}, local 12\d{{5}}\.\d ms, remote {FIGURE}, send {FIGURE}",
        wire_line,
    )
    assert re.fullmatch(
        r"slow request: Produce over gRPC of client 'mine', User:ANONYMOUS at 127.0.0.1: "
        rf"local 12\d{{5}}\.\d ms, remote {FIGURE}, total 12\d{{5}}\.\d ms",
        unary,
    )
    assert stream.startswith(
        "slow request: ProduceStream over gRPC of client '', User:ANONYMOUS at 127.0.0.1: local 12"
    )


@pytest.mark.slow
def test_a_long_poll_is_not_slow(
    broker: RunningBroker, clock: Clock, connect, batch, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect(broker)
    client.produce("t", batch([b"a"]))
    answers: list[Any] = []

    def poll_over_the_wire() -> None:
        with Wire(broker.node.kafka_addresses["PLAINTEXT"]) as wire:
            answers.append(fetch_over_the_wire(wire, 1))

    def poll() -> None:
        answers.append(client.fetch("t", 1, max_wait_ms=POLL_MS))

    polls = [threading.Thread(target=each, daemon=True) for each in (poll_over_the_wire, poll)]
    for each in polls:
        each.start()
    wait_until(lambda: broker.node.broker.waiting_requests == len(polls), "both wait")
    clock.move_on()
    client.produce("t", batch([b"b"]))
    for each in polls:
        each.join(PATIENCE_S)
    assert len(answers) == len(polls)
    observed = broker.node.broker.metrics.stages[fetch.API.name]
    wait_until(lambda: observed.total.count, "the wire's fetch has been measured")
    assert observed.remote.seconds > SLOW_MS / 1000
    assert lines(caplog) == []


def test_a_call_that_waits_for_the_start_is_not_slow(clock: Clock, caplog: pytest.LogCaptureFixture, connect) -> None:
    caplog.set_level(logging.INFO, "sparklog.broker.slow_requests")
    with start_broker(request_log_slow_ms=SLOW_MS) as broker:
        serving = broker.node.broker
        serving._is_ready.clear()
        client = connect(broker)
        call = client.admin.DescribeCluster.future(admin_pb2.DescribeClusterRequest())
        wait_until(lambda: serving._is_ready._waiters, "the call waits")
        clock.move_on()
        broker.run(release(serving))
        call.result(PATIENCE_S)
        assert lines(caplog) == []


async def release(serving: Any) -> None:
    serving._is_ready.set()


def test_off_means_no_line(clock: Clock, slow_disk: threading.Event, connect, batch, caplog) -> None:
    caplog.set_level(logging.INFO, "sparklog.broker.slow_requests")
    slow_disk.set()
    with start_broker(kafka=True, request_log_slow_ms=-1) as broker:
        connect(broker).produce("t", batch([b"slow"]))
        with Wire(broker.node.kafka_addresses["PLAINTEXT"]) as wire:
            produce_over_the_wire(wire, batch([b"slow"]))
    assert clock.ahead_s > SLOW_MS / 1000
    assert lines(caplog) == []


def test_lines_are_few_and_the_next_one_counts_those_left_out(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sparklog.broker.slow_requests")
    now = 100.0
    log = SlowRequests(0, lambda: now)

    def slow() -> None:
        log.log(
            "Fetch",
            "version 4",
            client_id="mine\nINFO forged",
            principal="User:a",
            address="::1",
            stages_s={"local": 0.5},
        )

    for _ in range(LINES_PER_S + 5):
        slow()
    now = 101.5
    slow()
    slow()
    line = r"slow request: Fetch version 4 of client 'mine\nINFO forged', User:a at ::1: local 500.0 ms"
    expected = [line] * LINES_PER_S + [f"{line}; 5 more slow requests before it were not logged", line]
    assert lines(caplog) == expected
