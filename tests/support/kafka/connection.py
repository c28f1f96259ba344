"""A client of Kafka's wire protocol that knows nothing but frames: one request, its response, in any version.

    with Wire(broker.node.kafka_addresses["PLAINTEXT"]) as wire:
        response = wire.send(METADATA, 12, topics=None, allow_auto_topic_creation=False)

Fields are given as to `sparklog.server.kafka.messages.make`: those that a version does not have are dropped.
"""

from __future__ import annotations

import itertools
import socket
import struct
from typing import Any

from kio.index import load_request_schema

from sparklog.server.kafka.messages import make
from sparklog.testing import kafka_frames
from support.patience import PATIENCE_S

CLIENT_ID = "wire"


class Wire:
    """One connection."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(tuple(address), timeout=PATIENCE_S)
        self._correlation_ids = itertools.count(1)
        self.client_id = CLIENT_ID

    def send(self, key: int, version: int, /, **fields: Any) -> Any:
        """The response, as kio's value of its version."""
        correlation_id = self.write(key, version, **fields)
        return self.read(key, version, correlation_id)

    def write(self, key: int, version: int, /, **fields: Any) -> int:
        """Send a request without waiting for its response; its correlation id."""
        correlation_id = next(self._correlation_ids)
        self.write_frame(request_frame(key, version, correlation_id, client_id=self.client_id, **fields))
        return correlation_id

    def write_frame(self, frame: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def read(self, key: int, version: int, correlation_id: int) -> Any:
        """The next response; it must be the one to this request, whole, with nothing behind it."""
        return kafka_frames.read_response(key, version, self.read_frame(), correlation_id)

    def read_frame(self) -> bytes:
        """The next frame without its size; raises ConnectionError where the broker has closed the connection."""
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self.socket.recv(size - len(parts))
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts += part
        return bytes(parts)


def request_frame(
    key: int, version: int, correlation_id: int = 1, /, *, client_id: str = CLIENT_ID, **fields: Any
) -> bytes:
    """A request with its header, without its size."""
    return message_frame(make(load_request_schema(key, version), **fields), correlation_id, client_id)


def message_frame(request: Any, correlation_id: int = 1, client_id: str = CLIENT_ID) -> bytes:
    """A request of kio's with its header, without its size."""
    return kafka_frames.request_frame(request, correlation_id, client_id)
