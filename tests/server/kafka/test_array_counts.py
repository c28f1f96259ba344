"""Arrays with a larger count than the request has bytes are refused before an allocation."""

from __future__ import annotations

from random import Random

import pytest

from sparklog.base.errors import InvalidRequest
from sparklog.server.kafka.apis import TRANSLATIONS
from sparklog.server.kafka.array_counts import ElementAllowance, skip_entity
from sparklog.server.kafka.messages import read_request, write
from support.kafka.random_requests import make_request

DELETE_TOPICS, FIND_COORDINATOR = 20, 10
VERSIONS = [
    (each.api.key, version)
    for each in TRANSLATIONS
    for version in range(each.api.versions[0], each.api.versions[1] + 1)
]


@pytest.mark.parametrize("count", ["ffffffff0f", "ffffffff7f", "8280808008", "ffffffff07"])
def test_a_count_of_32_bits_is_refused(count: str) -> None:
    with pytest.raises(InvalidRequest):
        read_request(DELETE_TOPICS, 6, bytes.fromhex(count))


def test_a_count_is_refused_wherever_the_array_is() -> None:
    asked = make_request(Random(1), FIND_COORDINATOR, 4)
    data = write(asked)
    where = data.index(bytes((len(asked.coordinator_keys) + 1,)), 1)
    with pytest.raises(InvalidRequest, match=f"an array of 4294967294 elements at position {where + 5}"):
        read_request(FIND_COORDINATOR, 4, data[:where] + bytes.fromhex("ffffffff0f") + data[where + 1 :])


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_every_request_is_walked_through_to_its_end(key: int, version: int) -> None:
    for seed in range(20):
        request = make_request(Random(seed), key, version)
        data = write(request)
        assert skip_entity(type(request))(memoryview(data), 0, ElementAllowance()) == len(data)
        assert read_request(key, version, data + b"\xff\xff\xff\xff\x0f") == request
