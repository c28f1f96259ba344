"""How long one client's request delays another's:  python -m bench.bystander [--help]

One connection sends a request that names thousands of topics, partitions, groups or members; meanwhile another asks for
ApiVersions again and again. Each line shows how long the request took, the worst latency of the other client, and the
broker's peak memory so far. Sparklog refuses a request of more than 50,000 names and closes its connection. With
--kafka HOST:PORT and --kafka-pid PID of an Apache Kafka on this machine, each line is measured on it too.
"""

from __future__ import annotations

import argparse
import io
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from kio.index import load_request_schema
from kio.serial import entity_writer

from bench.harness import BrokerProcess, broker_process
from sparklog.server.kafka.messages import make

API_VERSIONS = 18
TIMEOUT_S = 120
QUIET_S = 0.5
NAMES = (1_000, 10_000, 48_000, 300_000)


class Wide(NamedTuple):
    """A request of one API that can name any number of things."""

    key: int
    version: int
    fields: Callable[[int], dict[str, Any]]


REQUESTS = {
    "Metadata": Wide(
        3, 4, lambda n: {"topics": [{"name": str(i)} for i in range(n)], "allow_auto_topic_creation": False}
    ),
    "DeleteTopics": Wide(20, 3, lambda n: {"topic_names": [str(i) for i in range(n)], "timeout": 100}),
    "FindCoordinator": Wide(10, 4, lambda n: {"key_type": 0, "coordinator_keys": [str(i) for i in range(n)]}),
    "DescribeGroups": Wide(
        15, 3, lambda n: {"groups": [str(i) for i in range(n)], "include_authorized_operations": False}
    ),
    "DeleteGroups": Wide(42, 1, lambda n: {"groups_names": [str(i) for i in range(n)]}),
    "OffsetFetch": Wide(
        9, 5, lambda n: {"group_id": "g", "topics": [{"name": "t", "partition_indexes": list(range(n))}]}
    ),
    "LeaveGroup": Wide(
        13, 3,
        lambda n: {"group_id": "g", "members": [{"member_id": str(i), "group_instance_id": None} for i in range(n)]},
    ),
    "DescribeConfigs": Wide(
        32, 1,
        lambda n: {
            "resources": [{"resource_type": 2, "resource_name": str(i), "configuration_keys": None} for i in range(n)],
            "include_synonyms": False,
        },
    ),
}  # fmt: skip


class Figures(NamedTuple):
    seconds: float
    worst_ms: float
    peak_mib: float
    was_answered: bool


class Bystander(threading.Thread):
    """Asks for ApiVersions, again and again, and notes the worst latency."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(daemon=True)
        self.worst_s = 0.0
        self.stopped = threading.Event()
        self._socket = socket.create_connection(address, TIMEOUT_S)
        self._frame = frame(API_VERSIONS, 0, {})

    def run(self) -> None:
        while not self.stopped.wait(0.001):
            began = time.perf_counter()
            self._socket.sendall(self._frame)
            read_frame(self._socket)
            self.worst_s = max(self.worst_s, time.perf_counter() - began)
        self._socket.close()


def frame(key: int, version: int, fields: dict[str, Any]) -> bytes:
    """Return a request with its header and size."""
    request = make(load_request_schema(key, version), **fields)
    header = make(
        request.__header_schema__, request_api_key=key, request_api_version=version, correlation_id=1, client_id="bench"
    )
    out = io.BytesIO()
    entity_writer(type(header))(out, header)
    entity_writer(type(request))(out, request)
    return struct.pack(">i", len(out.getvalue())) + out.getvalue()


def read_frame(connection: socket.socket) -> bytes:
    """Read an answer without its size. Raises ConnectionError if the broker closes the connection."""
    size = struct.unpack(">i", _read(connection, 4))[0]
    return _read(connection, size)


def _read(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(min(1 << 20, size - len(parts)))
        if not part:
            raise ConnectionError
        parts += part
    return bytes(parts)


def measure(broker: BrokerProcess, address: tuple[str, int], sent: bytes) -> Figures:
    bystander = Bystander(address)
    bystander.start()
    time.sleep(QUIET_S)
    bystander.worst_s = 0.0
    was_answered = False
    began = time.perf_counter()
    with socket.create_connection(address, TIMEOUT_S) as connection, suppress(ConnectionError):
        connection.sendall(sent)
        read_frame(connection)
        was_answered = True
    seconds = time.perf_counter() - began
    time.sleep(QUIET_S)
    bystander.stopped.set()
    bystander.join()
    return Figures(seconds, 1_000 * bystander.worst_s, broker.memory_mib(), was_answered)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", nargs="+", default=list(REQUESTS), choices=list(REQUESTS))
    parser.add_argument("--names", nargs="+", type=int, default=list(NAMES), help="names in each request")
    parser.add_argument("--kafka", metavar="HOST:PORT")
    parser.add_argument("--kafka-pid", type=int)
    options = parser.parse_args()
    with broker_process("listeners=PLAINTEXT://127.0.0.1:0") as broker:
        peers = {"sparklog": (broker, broker.kafka)}
        if options.kafka:
            peers["kafka"] = (BrokerProcess(options.kafka_pid, "", options.kafka), options.kafka)
        for name in options.requests:
            wide = REQUESTS[name]
            for count in options.names:
                sent = frame(wide.key, wide.version, wide.fields(count))
                for peer, (process, address) in peers.items():
                    host, port = address.rsplit(":", 1)
                    found = measure(process, (host, int(port)), sent)
                    print(
                        f"{name:16} {count:7,} names {len(sent) / 1e6:5.2f} MB  {peer:9} "
                        f"{'answered' if found.was_answered else 'refused ':9} in {found.seconds:6.2f} s   "
                        f"others waited {found.worst_ms:7.1f} ms at most   {found.peak_mib:6.0f} MiB",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
