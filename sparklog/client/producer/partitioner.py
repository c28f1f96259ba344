"""Choice of a record's partition.

    with a partition        that partition
    with a partitioner      the partitioner's result; None: as a record without key
    with a key              murmur2 of the key, as Kafka's default partitioner: the same for every client
    without a key           the topic's sticky partition

The sticky partition (KIP-480) changes when its open batch is closed. So records without key fill whole batches, and
over time every partition gets its share. The next one is drawn at random from the other partitions with a leader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.base.errors import InvalidPartitions
from sparklog.base.murmur2 import partition_for_key
from sparklog.base.murmur2_column import partition_column

Partitioner = Callable[[str, bytes | None, int], int | None]

STICKY = -1
"""The sticky partition, in a column of partitions."""

REMEMBERED_KEYS = 16_384

# Keys repeat in most topics, and a lookup costs a tenth of the hash.
remembered_partition = lru_cache(maxsize=REMEMBERED_KEYS)(partition_for_key)


def next_sticky(current: int, leaders: Sequence[int], random: Random) -> int:
    """Return the sticky partition after `current` (-1: the first), given each partition's leader (-1: none)."""
    led = [number for number, leader in enumerate(leaders) if leader >= 0 and number != current]
    if led:
        return random.choice(led)
    return current if 0 <= current < len(leaders) else random.randrange(len(leaders))


def checked(chosen: int, topic: str, partitions: int) -> int:
    """Return `chosen`; raises InvalidPartitions if the topic has no partition of that number."""
    if not 0 <= chosen < partitions:
        raise InvalidPartitions(f"topic {topic!r} has partitions 0 to {partitions - 1}, not {chosen}")
    return chosen


def partition_keys(
    topic: str, keys: Any | None, rows: int, partitions: int, custom: Partitioner | None
) -> npt.NDArray[np.int32]:
    """Return the partition of each of `rows` keys; STICKY for a row without key and where `custom` returns None.

    keys: an Arrow binary column, or None for no keys.
    """
    if custom is not None:
        values = [None] * rows if keys is None else keys.to_pylist()
        chosen = [custom(topic, key, partitions) for key in values]
        return np.array(
            [STICKY if number is None else checked(number, topic, partitions) for number in chosen], np.int32
        )
    if keys is None:
        return np.full(rows, STICKY, np.int32)
    found = partition_column(*_offsets_and_data(keys), partitions)
    if keys.null_count:
        found[keys.is_null().to_numpy(zero_copy_only=False)] = STICKY
    return found


def _offsets_and_data(keys: Any) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    _, offsets, data = keys.cast(pa.binary()).buffers()
    starts = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    return starts, np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
