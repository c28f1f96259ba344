"""Kafka protocol frames as a client writes and reads them. The frames do not include the leading size field."""

from __future__ import annotations

import io

from kio.index import load_response_schema
from kio.serial import entity_reader, entity_writer

from sparklog.server.kafka.messages import Message, make


def request_frame(request: Message, correlation_id: int, client_id: str) -> bytes:
    """Return the bytes of the request header and of `request`, a kio entity."""
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
    """Return the response in `frame`, for API `key` at `version`.

    Raise AssertionError if the correlation id differs or bytes follow the response.
    """
    kind = load_response_schema(key, version)
    header, at = entity_reader(kind.__header_schema__)(frame, 0)
    assert header.correlation_id == correlation_id
    response, size = entity_reader(kind)(frame[at:], 0)
    assert at + size == len(frame)
    return response
