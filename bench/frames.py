"""Prebuilt frames of Kafka's protocol, and the sockets that they go over."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kio.index import load_request_schema

from bench.harness import BrokerProcess
from sparklog.server.kafka.messages import make
from sparklog.testing.kafka_frames import request_frame

SIZE = struct.Struct(">i")


def framed(api: tuple[int, int], **fields: Any) -> bytes:
    """Return the frame of a request with these fields. api: key and version."""
    frame = request_frame(make(load_request_schema(*api), **fields), 1, "bench")
    return SIZE.pack(len(frame)) + frame


@contextmanager
def connected(broker: BrokerProcess) -> Iterator[socket.socket]:
    host, _, port = broker.kafka.rpartition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection
