"""Connections of a Kafka listener: order, frames, limits, ends."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sparklog.base.errors import ConfigError
from sparklog.server.kafka import dispatch
from sparklog.server.kafka.translation import Translation
from sparklog.testing import RunningBroker, start_broker
from support.kafka.connection import Wire, request_frame
from support.patience import PATIENCE_MS, PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
LONG_MS = 600_000
MEBIBYTE = 1 << 20
IDLE_MS = 500
"""A client of a test that does nothing else says what it has to say within that time."""


def produce(wire: Wire, topic: str, records: bytes, acks: int = 1) -> int:
    """The correlation id of the answer, if there is one."""
    data = [{"name": topic, "partition_data": [{"index": 0, "records": bytes(records)}]}]
    fields = {"transactional_id": None, "acks": acks, "timeout": PATIENCE_MS, "topic_data": data}
    if acks == 0:
        return wire.write(PRODUCE, 9, **fields)
    (topic_response,) = wire.send(PRODUCE, 9, **fields).responses
    assert topic_response.partition_responses[0].error_code == 0
    return 0


def create_topic(wire: Wire, name: str) -> None:
    """Create a topic as clients do, by a request for its metadata."""
    until(
        lambda: (
            wire.send(METADATA, 4, topics=[{"name": name}], allow_auto_topic_creation=True).topics[0].error_code == 0
        )
    )


def fetch_fields(topic: str, offset: int = 0, max_wait: int = 0) -> dict[str, object]:
    part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 100 * MEBIBYTE, "log_start_offset": -1}
    return {
        "replica_id": -1,
        "max_wait": max_wait,
        "min_bytes": 1,
        "max_bytes": 100 * MEBIBYTE,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [part]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


def fetch(wire: Wire, topic: str) -> bytes:
    (found,) = wire.send(FETCH, 11, **fetch_fields(topic)).responses
    return found.partitions[0].records or b""


def api_versions(wire: Wire) -> None:
    assert wire.send(API_VERSIONS, 0).error_code == 0


def open_connections(broker: RunningBroker) -> int:
    return sum(figures.open for figures in broker.node.broker.metrics.listeners.values())


async def call(function: Callable[[], None]) -> None:
    """Send a request; for a broker's event loop."""
    function()


def until(condition: Callable[[], bool]) -> None:
    wait_until(condition, "the broker has taken notice", every_s=0.005)


def is_closed(wire: Wire) -> bool:
    """Whether the broker closes the connection without another byte."""
    wire.socket.settimeout(PATIENCE_S)
    try:
        return wire.socket.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.fixture
def topic(wire: Wire, new_name: Callable[[], str], batch: Callable[..., bytearray]) -> str:
    """A topic with one record."""
    name = new_name()
    create_topic(wire, name)
    produce(wire, name, batch([b"first"]))
    return name


# ---- order ----


def test_pipelined_requests_are_answered_in_order_also_behind_one_that_waits(wire: Wire, topic: str) -> None:
    waiting = request_frame(FETCH, 11, 1, **fetch_fields(topic, offset=1, max_wait=50))
    quick = [request_frame(API_VERSIONS, 0, number) for number in range(2, 60)]
    wire.socket.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in (waiting, *quick)))
    assert [struct.unpack_from(">i", wire.read_frame())[0] for _ in range(59)] == list(range(1, 60))


@pytest.mark.parametrize("listener", ["PLAINTEXT", "SSL"])
def test_answers_that_nobody_reads_for_a_while_come_whole_and_in_order(listener: str, keys: Path) -> None:
    """More answers of at least 4 MiB than sockets can buffer, and between them requests that wait for records."""
    config = {"ssl_keystore_location": str(keys / "server.pem")} if listener == "SSL" else {}
    with (
        start_broker(listeners=(f"{listener}://127.0.0.1:0",), num_partitions=100, **config) as broker,
        Wire(broker.node.kafka_addresses[listener]) as wire,
    ):
        if listener == "SSL":
            context = ssl.create_default_context(cafile=str(keys / "ca.pem"))
            wire.socket = context.wrap_socket(wire.socket, server_hostname="localhost")
        create_topic(wire, "t")
        metadata = {"topics": [{"name": "t"}], "allow_auto_topic_creation": False}
        frames = [
            request_frame(FETCH, 11, number, **fetch_fields("t", max_wait=5))
            if number % 100 == 7
            else request_frame(METADATA, 4, number, **metadata)
            for number in range(5_000)
        ]
        wire.socket.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
        channels = [each.channel for each in broker.node._kafka.connections]
        until(lambda: any(each._is_full if listener == "SSL" else each._left for each in channels))
        answers = [wire.read_frame() for _ in frames]
    assert [struct.unpack_from(">i", answer)[0] for answer in answers] == list(range(len(frames)))
    assert len({answer[4:] for number, answer in enumerate(answers) if number % 100 != 7}) == 1


def test_a_request_may_come_a_byte_at_a_time(wire: Wire) -> None:
    frame = request_frame(API_VERSIONS, 0, 7)
    for byte in struct.pack(">i", len(frame)) + frame:
        wire.socket.sendall(bytes((byte,)))
    assert struct.unpack_from(">i", wire.read_frame()) == (7,)


def test_a_large_request_and_what_follows_in_the_same_bytes(wire: Wire, topic: str, batch) -> None:
    records = bytes(batch([os.urandom(900_000)]))
    data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
    large = request_frame(PRODUCE, 9, 1, transactional_id=None, acks=1, timeout=PATIENCE_MS, topic_data=data)
    small = request_frame(API_VERSIONS, 0, 2)
    wire.socket.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in (large, small, large, small)))
    assert [struct.unpack_from(">i", wire.read_frame())[0] for _ in range(4)] == [1, 2, 1, 2]
    assert fetch(wire, topic).count(records[200:]) == 2


def test_nothing_is_sent_for_acks_0_and_the_next_request_is_served(wire: Wire, topic: str, batch) -> None:
    for _ in range(3):
        produce(wire, topic, batch([b"unacknowledged"]), acks=0)
    api_versions(wire)
    assert fetch(wire, topic).count(b"unacknowledged") == 3


def test_a_client_that_has_closed_its_side_still_gets_its_answers(wire: Wire, kafka_address, topic: str) -> None:
    frames = [request_frame(API_VERSIONS, 0, number) for number in range(40)]
    wire.socket.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
    wire.socket.shutdown(socket.SHUT_WR)
    assert [struct.unpack_from(">i", wire.read_frame())[0] for _ in frames] == list(range(40))
    assert is_closed(wire)


# ---- what ends a connection ----


@pytest.mark.parametrize("size", [-1, 0, 7, 100 * MEBIBYTE + 1, 2**31 - 1, -(2**31)])
def test_a_size_that_no_request_has_ends_the_connection(size: int, wire: Wire, kafka_address) -> None:
    with Wire(kafka_address) as other:
        wire.socket.sendall(struct.pack(">i", size))
        assert is_closed(wire)
        api_versions(other)


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">hhih", 999, 0, 1, -1),
        struct.pack(">hhih", METADATA, 99, 1, -1),
        struct.pack(">hhih", METADATA, -1, 1, -1),
        struct.pack(">hhih", METADATA, 1, 1, 100) + b"short",
        struct.pack(">hhih", METADATA, 1, 1, 2) + b"\xff\xff" + bytes(4),
        struct.pack(">hhih", METADATA, 1, 1, -1) + b"\0\0\0\1",
        struct.pack(">hhih", METADATA, 12, 1, -1) + b"\xff\xff\xff\xff\xff\xff",
    ],
    ids=["no such API", "too new", "negative", "torn", "no text", "torn body", "tags"],
)
def test_what_is_no_request_ends_the_connection(frame: bytes, wire: Wire, kafka_address) -> None:
    with Wire(kafka_address) as other:
        wire.write_frame(frame)
        assert is_closed(wire)
        api_versions(other)


def test_api_versions_of_an_unknown_version_is_told_which_are_known(wire: Wire) -> None:
    wire.write_frame(struct.pack(">hhih", API_VERSIONS, 99, 5, -1) + b"\0whatever")
    answer = wire.read(API_VERSIONS, 0, 5)
    assert answer.error_code == 35
    assert [(each.api_key, each.min_version) for each in answer.api_keys] == [(API_VERSIONS, 0)]
    api_versions(wire)


@pytest.mark.parametrize(("name", "error"), [("a-client.2", 0), ("", 42), ("-client", 42), ("a client", 42)])
def test_software_says_who_it_is_in_words_that_can_be_logged(wire: Wire, name: str, error: int) -> None:
    said = {"client_software_name": name, "client_software_version": "1.0"}
    assert wire.send(API_VERSIONS, 3, **said).error_code == error


@pytest.fixture
def serve_metadata(kafka_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Serve Metadata by a function of the test."""
    original = dispatch._BY_KEY[METADATA]

    def replace(serve: Callable[..., object], read: Callable[..., object] | None = None) -> None:
        monkeypatch.setitem(dispatch._BY_KEY, METADATA, Translation(api=original.api, serve=serve, read=read))
        dispatch._format_of.cache_clear()

    yield replace
    monkeypatch.undo()
    dispatch._format_of.cache_clear()


def test_a_failure_inside_ends_one_connection_and_is_logged(wire: Wire, kafka_address, serve_metadata, caplog) -> None:
    async def serve(call, request):
        raise ValueError("a mistake of ours")

    serve_metadata(serve)
    with Wire(kafka_address) as other:
        wire.write(METADATA, 1, topics=[])
        assert is_closed(wire)
        api_versions(other)
    assert "a mistake of ours" in caplog.text


def test_a_failure_in_reading_a_request_ends_one_connection_too(wire: Wire, kafka_address, serve_metadata) -> None:
    async def serve(call, request):
        return request

    def read(version, body):
        raise IndexError("beyond the end")

    serve_metadata(serve, read)
    with Wire(kafka_address) as other:
        wire.write(METADATA, 1, topics=[])
        assert is_closed(wire)
        api_versions(other)


def test_a_failure_after_waiting_ends_one_connection_too(wire: Wire, kafka_address, serve_metadata) -> None:
    async def serve(call, request):
        await asyncio.sleep(0)
        raise ValueError("a mistake of ours")

    serve_metadata(serve)
    with Wire(kafka_address) as other:
        wire.write(METADATA, 1, topics=[])
        assert is_closed(wire)
        api_versions(other)


# ---- how many ----


def test_connections_beyond_the_quotas_are_closed_and_counted() -> None:
    with start_broker(kafka=True, max_connections_per_ip=2) as broker:
        address = broker.node.kafka_addresses["PLAINTEXT"]
        with Wire(address) as first, Wire(address) as second:
            api_versions(first)
            api_versions(second)
            with Wire(address) as third:
                assert is_closed(third)
            assert broker.node.broker.metrics.listeners["PLAINTEXT"].refused == 1
        until(lambda: open_connections(broker) == 0)
        with Wire(address) as again:
            api_versions(again)


@pytest.mark.parametrize(
    ("config", "allowed"),
    [
        ({"max_connections": 3}, 3),
        ({"max_connections_per_ip": 1, "max_connections_per_ip_overrides": ("127.0.0.1:3", "10.0.0.1:0")}, 3),
    ],
)
def test_quotas_of_all_and_of_some_hosts(config: dict[str, object], allowed: int) -> None:
    with start_broker(kafka=True, **config) as broker:
        address = broker.node.kafka_addresses["PLAINTEXT"]
        wires = [Wire(address) for _ in range(allowed)]
        for wire in wires:
            api_versions(wire)
        with Wire(address) as one_more:
            assert is_closed(one_more)
        for wire in wires:
            wire.close()


def test_an_override_that_is_none_is_told() -> None:
    with pytest.raises(ConfigError, match=r"max\.connections\.per\.ip\.overrides = 'localhost': it must be HOST:COUNT"):
        start_broker(kafka=True, max_connections_per_ip_overrides=("localhost",))


def test_requests_beyond_those_in_work_wait_their_turn_and_long_polls_keep_nobody_out(serve_metadata, batch) -> None:
    may_end = asyncio.Event()
    served: list[int] = []

    async def serve(call, request):
        await may_end.wait()
        served.append(call.correlation_id)
        return [struct.pack(">i", 0)]

    with start_broker(kafka=True, queued_max_requests=1) as broker:
        address = broker.node.kafka_addresses["PLAINTEXT"]
        with Wire(address) as polling, Wire(address) as first, Wire(address) as second, Wire(address) as third:
            create_topic(polling, "t")
            serve_metadata(serve)
            produce(polling, "t", batch([b"x"]))
            polling.write(FETCH, 11, **fetch_fields("t", offset=1, max_wait=LONG_MS))
            until(lambda: broker.node.broker.waiting_requests == 1)
            queue = broker.node._kafka.queue
            first.write_frame(request_frame(METADATA, 1, 1, topics=[]))
            until(lambda: queue.requests == 1)
            second.write_frame(request_frame(METADATA, 1, 2, topics=[]))
            until(lambda: queue.waiting == 1)
            third.write_frame(request_frame(API_VERSIONS, 0, 3))
            until(lambda: queue.waiting == 2)
            broker.run(call(may_end.set))
            assert [struct.unpack_from(">i", each.read_frame())[0] for each in (first, second, third)] == [1, 2, 3]
            assert served == [1, 2]
            assert (queue.requests, queue.bytes, queue.waiting) == (0, 0, 0)


# ---- how long ----


def write_beforehand(folder: Path, *values: bytearray) -> None:
    """Create a topic in the folder, by a broker that keeps idle connections."""
    with start_broker(folder, kafka=True) as broker, Wire(broker.node.kafka_addresses["PLAINTEXT"]) as wire:
        create_topic(wire, "t")
        for value in values:
            produce(wire, "t", value)


def test_idle_and_half_sent_ends_after_the_limit_and_a_long_poll_does_not(batch, tmp_path: Path) -> None:
    write_beforehand(tmp_path, batch([b"x"]))
    with start_broker(tmp_path, kafka=True, connections_max_idle_ms=IDLE_MS) as broker:
        address = broker.node.kafka_addresses["PLAINTEXT"]
        with Wire(address) as polling:
            polling.write(FETCH, 11, **fetch_fields("t", offset=1, max_wait=LONG_MS))
            until(lambda: broker.node.broker.waiting_requests == 1)
            with Wire(address) as idle, Wire(address) as half, Wire(address) as silent:
                api_versions(idle)
                half.socket.sendall(struct.pack(">i", 1000) + b"half of it")
                assert all(is_closed(each) for each in (idle, half, silent))
            assert broker.node.broker.metrics.listeners["PLAINTEXT"].expired == 3
            assert broker.node.broker.waiting_requests == 1
            with Wire(address) as writer:
                produce(writer, "t", batch([b"y"]))
            assert polling.read_frame()


def test_who_does_not_read_is_cut_off(batch, tmp_path: Path) -> None:
    write_beforehand(tmp_path, *[batch([bytes(1_000_000)])] * 16)
    with (
        start_broker(tmp_path, kafka=True, connections_max_idle_ms=IDLE_MS) as broker,
        Wire(broker.node.kafka_addresses["PLAINTEXT"]) as reader,
    ):
        reader.write(FETCH, 11, **fetch_fields("t"))
        until(lambda: broker.node.broker.metrics.listeners["PLAINTEXT"].expired == 1)
        until(lambda: open_connections(broker) == 0)
        with pytest.raises(ConnectionError):
            reader.read_frame()


def test_a_request_that_was_announced_and_never_sent_takes_no_memory_and_keeps_nobody_out(
    kafka_broker: RunningBroker,
) -> None:
    address = kafka_broker.node.kafka_addresses["PLAINTEXT"]
    before, connections = resident_bytes(), open_connections(kafka_broker)
    wires = [Wire(address) for _ in range(50)]
    for wire in wires:
        wire.socket.sendall(struct.pack(">i", 90 * MEBIBYTE) + bytes(1000))
    until(lambda: open_connections(kafka_broker) >= connections + 50)
    until(lambda: kafka_broker.node._kafka.queue.arriving_bytes == 50 * 1000)
    assert resident_bytes() - before < 20 * MEBIBYTE
    with Wire(address) as another:
        api_versions(another)
    for wire in wires:
        wire.close()
    until(lambda: kafka_broker.node._kafka.queue.arriving_bytes == 0)


def test_requests_that_arrive_and_do_not_end_fill_no_memory_and_keep_nobody_out(kafka_broker: RunningBroker) -> None:
    address, queue = kafka_broker.node.kafka_addresses["PLAINTEXT"], kafka_broker.node._kafka.queue
    most = kafka_broker.node.broker.config.queued_max_request_bytes
    before, connections = resident_bytes(), open_connections(kafka_broker)
    slow = Wire(address)
    slow.socket.sendall(struct.pack(">i", MEBIBYTE) + bytes(MEBIBYTE // 2))
    wires = [Wire(address) for _ in range(10)]
    for wire in wires:
        with suppress(ConnectionError):
            wire.socket.sendall(struct.pack(">i", 90 * MEBIBYTE) + bytes(60 * MEBIBYTE))
        assert queue.arriving_bytes <= most
        assert resident_bytes() - before < 2 * most  # without a bound, there are 600 MiB in the end
        with Wire(address) as another:
            api_versions(another)
    until(lambda: open_connections(kafka_broker) < connections + 10)
    slow.socket.sendall(bytes(MEBIBYTE // 4))  # a smaller one may go on
    until(lambda: queue.arriving_bytes % MEBIBYTE == 3 * MEBIBYTE // 4)
    for wire in (slow, *wires):
        wire.close()
    until(lambda: queue.arriving_bytes == 0)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_long_poll_ends_when_its_client_goes_away(kafka_broker: RunningBroker, topic: str) -> None:
    before = kafka_broker.node.broker.waiting_requests
    with Wire(kafka_broker.node.kafka_addresses["PLAINTEXT"]) as leaving:
        leaving.write(FETCH, 11, **fetch_fields(topic, offset=1, max_wait=LONG_MS))
        until(lambda: kafka_broker.node.broker.waiting_requests == before + 1)
    until(lambda: kafka_broker.node.broker.waiting_requests == before)


# ---- what is sent from files ----


@pytest.mark.parametrize("batches", [1, 12])
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_fetched_records_are_the_bytes_of_the_log(
    protocol: str, batches: int, keys: Path, batch, tmp_path: Path
) -> None:
    listener = f"{protocol}://127.0.0.1:0"
    with (
        start_broker(tmp_path, listeners=(listener,), ssl_keystore_location=str(keys / "server.pem")) as broker,
        Wire(broker.node.kafka_addresses[protocol]) as wire,
    ):
        if protocol == "SSL":
            context = ssl.create_default_context(cafile=str(keys / "ca.pem"))
            wire.socket = context.wrap_socket(wire.socket, server_hostname="127.0.0.1")
        create_topic(wire, "t")
        for number in range(batches):
            produce(wire, "t", batch([os.urandom(900_000), b"%d" % number]))
        assert fetch(wire, "t") == (tmp_path / "t-0" / f"{0:020d}.log").read_bytes()
        api_versions(wire)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_file_that_became_shorter_while_it_was_sent_ends_the_connection(
    batch, tmp_path: Path, keys: Path, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    listeners = ("PLAINTEXT://127.0.0.1:0", "SSL://127.0.0.1:0")
    with start_broker(tmp_path, listeners=listeners, ssl_keystore_location=str(keys / "server.pem")) as broker:
        addresses = broker.node.kafka_addresses
        with Wire(addresses["PLAINTEXT"]) as writer, Wire(addresses[protocol]) as reader:
            if protocol == "SSL":
                context = ssl.create_default_context(cafile=str(keys / "ca.pem"))
                reader.socket = context.wrap_socket(
                    reader.socket, server_hostname="127.0.0.1", suppress_ragged_eofs=True
                )
            create_topic(writer, "t")
            for _ in range(16):
                produce(writer, "t", batch([bytes(1_000_000)]))
            reader.write(FETCH, 11, **fetch_fields("t"))
            first = reader.socket.recv(1000)
            os.truncate(tmp_path / "t-0" / f"{0:020d}.log", 15 * MEBIBYTE)
            (announced,) = struct.unpack_from(">i", first)
            got = len(first) - 4
            while part := reader.socket.recv(MEBIBYTE):
                got += len(part)
            assert got < announced
            api_versions(writer)
    assert not [record.getMessage() for record in caplog.records if record.name == "asyncio"]


# ---- listeners ----


def brokers(wire: Wire) -> list[tuple[str, int]]:
    return [(each.host, each.port) for each in wire.send(METADATA, 1, topics=[]).brokers]


def test_clients_of_each_listener_are_told_its_address() -> None:
    with start_broker(
        listeners=("INSIDE://127.0.0.1:0", "OUTSIDE://127.0.0.1:0"),
        advertised_listeners=("OUTSIDE://broker.example:19092",),
        listener_security_protocol_map=("INSIDE:PLAINTEXT", "OUTSIDE:PLAINTEXT"),
    ) as broker:
        inside, outside = (sock._socket.getsockname() for sock in broker.node._kafka._servers)
        assert broker.kafka == f"127.0.0.1:{inside[1]}"
        with Wire(inside) as wire:
            assert brokers(wire) == [inside]
        with Wire(outside) as wire:
            assert brokers(wire) == [("broker.example", 19092)]


def test_ipv6_and_all_interfaces() -> None:
    with start_broker(
        listeners=("SIX://[::1]:0", "ALL://:0"), listener_security_protocol_map=("SIX:PLAINTEXT", "ALL:PLAINTEXT")
    ) as broker:
        six, everywhere = (broker.node.kafka_addresses[name] for name in ("SIX", "ALL"))
        assert (six.host, everywhere.host) == ("::1", socket.gethostname())
        for address in (six, ("127.0.0.1", everywhere.port), ("::1", everywhere.port)):
            with Wire(address) as wire:
                api_versions(wire)
                (host,) = {each.session.host for each in broker.node._kafka.connections}
                assert host == address[0]
            until(lambda: open_connections(broker) == 0)


def test_a_stop_answers_what_waits_and_closes_the_rest_and_the_port_is_free_at_once(batch, tmp_path: Path) -> None:
    # Where it waited for the poll, or for all the time that it allows itself, the test would not end.
    with start_broker(tmp_path, kafka=True, controlled_shutdown_timeout_ms=2 * LONG_MS) as broker:
        address = broker.node.kafka_addresses["PLAINTEXT"]
        with Wire(address) as polling, Wire(address) as idle, Wire(address) as half:
            create_topic(polling, "t")
            produce(polling, "t", batch([b"x"]))
            asked = polling.write(FETCH, 11, **fetch_fields("t", offset=1, max_wait=LONG_MS))
            api_versions(idle)
            half.socket.sendall(b"\0\0")
            until(lambda: broker.node.broker.waiting_requests == 1)
            stopping = threading.Thread(target=broker.stop, daemon=True)
            stopping.start()
            stopping.join(PATIENCE_S)
            assert not stopping.is_alive(), "the broker does not stop"
            assert polling.read(FETCH, 11, asked).responses[0].partitions[0].high_watermark == 1
            assert all(is_closed(each) for each in (polling, idle, half))
    with (
        start_broker(tmp_path, listeners=(f"PLAINTEXT://{address}",)) as broker,
        Wire(broker.node.kafka_addresses["PLAINTEXT"]) as wire,
    ):
        api_versions(wire)


def settle(broker: RunningBroker) -> None:
    """Wait for the broker's work after it has sent a response."""
    broker.run(asyncio.sleep(0))


def test_the_parts_of_a_requests_time_are_counted(kafka_broker: RunningBroker, wire: Wire, topic: str) -> None:
    wire.send(FETCH, 11, **fetch_fields(topic, offset=1, max_wait=30))
    settle(kafka_broker)
    stages = kafka_broker.node.broker.metrics.stages["Fetch"]
    found = stages.histograms()
    assert list(found) == ["RequestQueueTime", "LocalTime", "RemoteTime", "ResponseSendTime", "TotalTime"]
    assert {sum(buckets) for buckets, _ in found.values()} == {stages.total.count}
    assert found["RemoteTime"][1] >= 0.02
    assert found["TotalTime"][1] >= found["RemoteTime"][1] + found["LocalTime"][1]


def test_metrics_tell_of_connections_and_of_the_parts_of_requests() -> None:
    with (
        start_broker(kafka=True, metrics_listener="127.0.0.1:0") as broker,
        Wire(broker.node.kafka_addresses["PLAINTEXT"]) as wire,
    ):
        api_versions(wire)
        settle(broker)
        with urllib.request.urlopen(f"http://{broker.node.metrics_address}/metrics", timeout=PATIENCE_S) as answer:
            told = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[0] != "#")
    assert told['sparklog_connections{listener="PLAINTEXT"}'] == "1.0"
    assert told['sparklog_connections_accepted_total{listener="PLAINTEXT"}'] == "1.0"
    assert told['sparklog_connections_refused_total{listener="PLAINTEXT"}'] == "0.0"
    for part in ("RequestQueueTime", "LocalTime", "RemoteTime", "ResponseSendTime", "TotalTime"):
        assert told[f'sparklog_kafka_request_seconds_count{{api="ApiVersions",part="{part}"}}'] == "1.0"
