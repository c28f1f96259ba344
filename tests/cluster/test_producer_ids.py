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
from sparklog.cluster.producer_ids import BLOCK, BLOCK_SIZE, ProducerIds, begin, claim_block, leap
from sparklog.cluster.sqlite import SqliteStore

NOW_MS = 1_700_000_000_000


def new_store(path: str = ":memory:") -> SqliteStore:
    store = SqliteStore.open(path)
    begin(store, 1)
    return store


def ids_of(store: SqliteStore, broker_id: int) -> ProducerIds:
    return ProducerIds(store, broker_id, time_ms=lambda: NOW_MS)


async def take(ids: ProducerIds, count: int) -> list[int]:
    return list(await asyncio.gather(*(ids.next() for _ in range(count))))


def test_ids_go_on_over_blocks_and_a_restart_begins_a_new_block() -> None:
    store = new_store()
    first = asyncio.run(take(ids_of(store, 1), BLOCK_SIZE + 1))
    assert first == list(range(BLOCK_SIZE + 1))
    assert asyncio.run(take(ids_of(store, 1), 1)) == [2 * BLOCK_SIZE]


def test_the_block_stands_in_the_store_as_kafka_writes_it() -> None:
    store = new_store()
    claim_block(store, 7, NOW_MS)
    assert json.loads(store.get(BLOCK).data) == {"version": 1, "broker": 7, "block_start": "0", "block_end": "999"}


def test_brokers_that_claim_at_the_same_moment_get_different_blocks(tmp_path: Path) -> None:
    def claim(broker_id: int) -> list[range]:
        store = SqliteStore.open(str(tmp_path / "cluster.sqlite"))
        try:
            return [claim_block(store, broker_id, NOW_MS) for _ in range(5)]
        finally:
            store.close()

    new_store(str(tmp_path / "cluster.sqlite")).close()
    with ThreadPoolExecutor(3) as pool:
        blocks = [block for found in pool.map(claim, range(3)) for block in found]
    assert sorted(block[0] for block in blocks) == [number * BLOCK_SIZE for number in range(15)]


def test_ids_that_stand_in_logs_already_are_not_given_again() -> None:
    store = new_store()
    assert claim_block(store, 1, NOW_MS, above=41) == range(42, 42 + BLOCK_SIZE)
    assert claim_block(store, 1, NOW_MS, above=41)[0] == 42 + BLOCK_SIZE


def test_ids_that_a_lost_store_gave_out_are_not_given_again() -> None:
    """The broker that starts first has not seen the ids that others gave out, nor the ids of the loss before."""
    given = [claim_block(new_store(), 2, NOW_MS)]
    for now_ms in (NOW_MS, NOW_MS + 7):
        store = SqliteStore.open(":memory:")
        leap(store, 1, now_ms)
        leap(store, 2, now_ms - 3)
        given += [claim_block(store, broker_id, now_ms) for broker_id in (1, 2, 3)]
    assert all(one[-1] < other[0] for one, other in pairwise(given))
    assert given[-1][-1] < MAX_LONG


def test_a_broker_that_still_runs_gives_out_no_id_twice_while_somebody_deletes_all_nodes() -> None:
    store = new_store()
    given = [claim_block(store, 2, NOW_MS)]
    store.delete(BLOCK)
    given += [claim_block(store, 1, NOW_MS + 5), claim_block(store, 2, NOW_MS + 6)]
    begin(store, 3)
    given.append(claim_block(store, 3, NOW_MS + 7))
    assert all(one[-1] < other[0] for one, other in pairwise(given))


class Contested(SqliteStore):
    """A store in which another broker always writes first."""

    def set(self, path: str, data: bytes, version: int = -1) -> int:
        raise BadVersion(path)


def test_clients_retry_if_no_block_can_be_reserved() -> None:
    store = Contested.open(":memory:")
    begin(store, 1)
    with pytest.raises(CoordinatorLoadInProgress):
        asyncio.run(ids_of(store, 1).next())
