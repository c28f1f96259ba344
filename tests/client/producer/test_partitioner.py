"""The partition of a record."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.base.errors import InvalidPartitions
from sparklog.client.producer.partitioner import STICKY, checked, next_sticky, partition_keys, remembered_partition


def test_keys_go_where_kafkas_default_partitioner_puts_them() -> None:
    # (murmur2(key) & 0x7fffffff) % 1000, with the hashes of org.apache.kafka.common.utils.UtilsTest
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"": 275646681}

    for key, hashed in known.items():
        assert remembered_partition(key, 1000) == (hashed & 0x7FFFFFFF) % 1000


@settings(max_examples=50, deadline=None)
@given(
    keys=st.lists(st.none() | st.binary(max_size=20), min_size=1),
    partitions=st.integers(1, 50),
    start=st.integers(0, 3),
)
def test_a_column_of_keys_goes_where_each_key_would(keys: list[bytes | None], partitions: int, start: int) -> None:
    column = pa.array(keys, pa.binary()).slice(start)

    found = partition_keys("t", column, len(column), partitions, None)

    assert found.tolist() == [STICKY if key is None else remembered_partition(key, partitions) for key in keys[start:]]


def test_a_custom_partitioner_is_asked_for_every_key() -> None:
    keys = pa.array([b"a", None, b"b"], pa.binary())

    found = partition_keys("t", keys, 3, 4, lambda topic, key, partitions: {b"a": 3, b"b": None}.get(key or b"", 0))

    assert found.tolist() == [3, 0, STICKY]
    assert partition_keys("t", None, 2, 4, lambda topic, key, partitions: 1).tolist() == [1, 1]


def test_without_keys_the_sticky_partition_takes_all() -> None:
    assert np.array_equal(partition_keys("t", None, 3, 4, None), [STICKY] * 3)


@pytest.mark.parametrize("number", [-1, 4])
def test_a_partition_that_is_not_there_is_refused(number: int) -> None:
    with pytest.raises(InvalidPartitions, match=f"partitions 0 to 3, not {number}"):
        checked(number, "t", 4)


def test_sticky_partitions_follow_at_random_never_twice_in_a_row() -> None:
    random = Random(3)
    current = -1
    seen: Counter[int] = Counter()
    for _ in range(3_000):
        following = next_sticky(current, [0, 0, -1, 0], random)
        assert following != current
        current = following
        seen[current] += 1

    assert seen.keys() == {0, 1, 3}
    assert min(seen.values()) > 900


def test_with_one_partition_or_no_leader_there_is_still_a_sticky_one() -> None:
    random = Random(3)
    assert next_sticky(-1, [0], random) == 0
    assert next_sticky(0, [0], random) == 0
    assert next_sticky(-1, [-1, -1], random) in (0, 1)
    assert next_sticky(1, [-1, -1], random) == 1
