"""Frames of Kafka's protocol as a client writes and reads them, without the size in front."""

from __future__ import annotations

import io

from kio.index import load_response_schema
from kio.serial import entity_reader, entity_writer

from sparklog.server.kafka.messages import Message, make


def request_frame(request: Message, correlation_id: int, client_id: str) -> bytes:
    """A request of kio's, with its header."""
    header = make(
        request.__header_schema__,
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    buffer = io.BytesIO()
    entity_writer(type(header))(buffer, header)
    entity_writer(type(request))(buffer, request)
    return buffer.getvalue()


def read_response(key: int, version: int, frame: bytes, correlation_id: int) -> Message:
    """The response to this request; the frame must hold it whole, and nothing else."""
    kind = load_response_schema(key, version)
    header, at = entity_reader(kind.__header_schema__)(frame, 0)
    assert header.correlation_id == correlation_id
    response, size = entity_reader(kind)(frame[at:], 0)
    assert at + size == len(frame)
    return response
