import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.base.murmur2 import murmur2, partition_for_key
from sparklog.base.murmur2_column import murmur2_column, partition_column

# The values that org.apache.kafka.common.utils.UtilsTest.testMurmur2 expects.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def columns(keys: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0] + [len(key) for key in keys]).astype(np.int32)
    return offsets, np.frombuffer(b"".join(keys), dtype=np.uint8)


@pytest.mark.parametrize(("key", "expected"), KNOWN.items())
def test_hash_is_the_java_clients(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_partition_takes_the_positive_part_of_the_hash() -> None:
    assert partition_for_key(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7


@pytest.mark.slow
@given(st.lists(st.binary(max_size=40) | st.binary(min_size=250, max_size=270), max_size=30))
@settings(max_examples=100, deadline=None)
def test_a_column_hashes_as_its_keys_do(keys: list[bytes]) -> None:
    offsets, data = columns(keys)
    assert murmur2_column(offsets, data).tolist() == [murmur2(key) for key in keys]
    assert partition_column(offsets, data, 12).tolist() == [partition_for_key(key, 12) for key in keys]


def test_a_sliced_column_may_start_anywhere() -> None:
    offsets, data = columns([b"skipped", b"foobar", b"21", b"skipped too"])
    assert murmur2_column(offsets[1:4], data).tolist() == [murmur2(b"foobar"), murmur2(b"21")]
