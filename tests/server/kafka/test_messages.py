"""Requests that kio reads although its schema forbids them."""

from __future__ import annotations

import struct

import pytest

from sparklog.base.errors import InvalidRequest
from sparklog.server.kafka.messages import read_request

DELETE_TOPICS, DELETE_RECORDS, DESCRIBE_LOG_DIRS = 20, 21, 35
NULL = struct.pack(">i", -1)
TIMEOUT = struct.pack(">i", 1000)


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        (DELETE_TOPICS, 1, NULL + TIMEOUT),
        (DELETE_RECORDS, 0, NULL + TIMEOUT),
        (DELETE_RECORDS, 0, struct.pack(">ih1s", 1, 1, b"t") + NULL + TIMEOUT),
    ],
)
def test_an_array_that_must_be_there_cannot_be_null(key: int, version: int, body: bytes) -> None:
    with pytest.raises(InvalidRequest, match="cannot be null"):
        read_request(key, version, body)


def test_an_array_that_may_be_null_is() -> None:
    assert read_request(DESCRIBE_LOG_DIRS, 1, NULL).topics is None
