"""Producer ids are never given twice."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from sparklog.base.config_keys import MAX_LONG
from sparklog.base.errors import BadVersion, CoordinatorLoadInProgress
from sparklog.cluster.producer_ids import BLOCK, BLOCK_SIZE, ProducerIds, claim_block, leap
from sparklog.cluster.sqlite import SqliteStore


async def take(ids: ProducerIds, count: int) -> list[int]:
    return list(await asyncio.gather(*(ids.next() for _ in range(count))))


def test_ids_go_on_over_blocks_and_a_restart_begins_a_new_block() -> None:
    store = SqliteStore.open(":memory:")
    first = asyncio.run(take(ProducerIds(store, 1), BLOCK_SIZE + 1))
    assert first == list(range(BLOCK_SIZE + 1))
    assert asyncio.run(take(ProducerIds(store, 1), 1)) == [2 * BLOCK_SIZE]


def test_the_block_stands_in_the_store_as_kafka_writes_it() -> None:
    store = SqliteStore.open(":memory:")
    claim_block(store, 7)
    assert json.loads(store.get(BLOCK).data) == {"version": 1, "broker": 7, "block_start": "0", "block_end": "999"}


def test_brokers_that_claim_at_the_same_moment_get_different_blocks(tmp_path: Path) -> None:
    def claim(broker_id: int) -> list[range]:
        store = SqliteStore.open(str(tmp_path / "cluster.sqlite"))
        try:
            return [claim_block(store, broker_id) for _ in range(5)]
        finally:
            store.close()

    SqliteStore.open(str(tmp_path / "cluster.sqlite")).close()
    with ThreadPoolExecutor(3) as pool:
        blocks = [block for found in pool.map(claim, range(3)) for block in found]
    assert sorted(block[0] for block in blocks) == [number * BLOCK_SIZE for number in range(15)]


def test_ids_that_stand_in_logs_already_are_not_given_again() -> None:
    store = SqliteStore.open(":memory:")
    assert claim_block(store, 1, above=41) == range(42, 42 + BLOCK_SIZE)
    assert claim_block(store, 1, above=41)[0] == 42 + BLOCK_SIZE


def test_ids_that_a_lost_store_gave_out_are_not_given_again() -> None:
    """The broker that starts first has not seen the ids that others gave out, nor the ids of the loss before."""
    given = [claim_block(SqliteStore.open(":memory:"), 2)]
    for now_ms in (1_700_000_000_000, 1_700_000_000_007):
        store = SqliteStore.open(":memory:")
        leap(store, 1, now_ms)
        leap(store, 2, now_ms - 3)
        given += [claim_block(store, broker_id) for broker_id in (1, 2, 3)]
    assert all(one[-1] < other[0] for one, other in pairwise(given))
    assert given[-1][-1] < MAX_LONG


class Contested(SqliteStore):
    """A store in which another broker always writes first."""

    def set(self, path: str, data: bytes, version: int = -1) -> int:
        raise BadVersion(path)


def test_clients_retry_if_no_block_can_be_reserved() -> None:
    store = Contested.open(":memory:")
    claim_block(store, 1)
    with pytest.raises(CoordinatorLoadInProgress):
        asyncio.run(ProducerIds(store, 1).next())
