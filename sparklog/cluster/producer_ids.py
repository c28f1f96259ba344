"""Producer ids, which are never given twice, across restarts and brokers (Kafka's ZkProducerIdManager).

/latest_producer_id_block   {"version": 1, "broker": N, "block_start": "0", "block_end": "999"}

A broker reserves a block of ids by writing the next block to the node, by compare and set. Then it gives the ids out
one by one without a call to the store. The remaining ids of a stopped broker are lost.

Logs also hold producer ids, and may outlive the store or come from Apache Kafka. So a block begins above the ids in
this broker's logs (`above`): a new producer must not get the id of an old one.

If the store has lost the last block, the ids that other brokers have given out are unknown. Then blocks continue at the
time of day (`leap`), which is above them: no cluster gives out a million ids each millisecond. Only a new store begins
at 0 (`begin`), so a broker that finds no node later knows that the store has lost it: somebody is deleting all nodes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import suppress

from sparklog.base.config_keys import MAX_LONG
from sparklog.base.errors import BadVersion, CoordinatorLoadInProgress, NodeExists, StoreError
from sparklog.cluster.store import Store, encode_json, find_node

BLOCK = "/latest_producer_id_block"
BLOCK_SIZE = 1000
IDS_PER_MS_BITS = 20
CLAIMS = 100
"""Maximum number of attempts; each fails if another broker claims a block at the same moment."""


class ProducerIds:
    """Gives out producer ids. Used on one event loop."""

    def __init__(self, store: Store, broker_id: int, *, time_ms: Callable[[], int], above: int = -1) -> None:
        self._store = store
        self._broker_id = broker_id
        self._time_ms = time_ms
        self._above = above
        self._free: Iterator[int] = iter(())
        self._claiming = asyncio.Lock()

    async def next(self) -> int:
        """Return a new id. Raises CoordinatorLoadInProgress, which clients retry, if the store fails."""
        async with self._claiming:
            producer_id = next(self._free, None)
            if producer_id is None:
                try:
                    block = await asyncio.to_thread(
                        claim_block, self._store, self._broker_id, self._time_ms(), above=self._above
                    )
                except StoreError as error:
                    raise CoordinatorLoadInProgress(f"no producer ids can be reserved: {error}") from error
                self._free = iter(block)
                producer_id = next(self._free)
            return producer_id


def begin(store: Store, broker_id: int) -> None:
    """Let the blocks of a new store begin at 0. Blocks. Raises StoreError."""
    with suppress(NodeExists):
        store.create(BLOCK, _encode(broker_id, range(0)))


def claim_block(store: Store, broker_id: int, now_ms: int, *, above: int = -1) -> range:
    """Reserve and return a block of ids for this broker, all greater than `above`. Blocks. Raises StoreError."""

    def start_after(last: int | None) -> int:
        return max(above, _above_all(now_ms) if last is None else last) + 1

    return _write_block(store, broker_id, start_after)


def leap(store: Store, broker_id: int, now_ms: int) -> None:
    """Continue the blocks above all ids that can have been given out until now. Blocks. Raises StoreError."""
    _write_block(store, broker_id, lambda last: max(_above_all(now_ms), -1 if last is None else last) + 1)


def _above_all(now_ms: int) -> int:
    return (now_ms << IDS_PER_MS_BITS) - 1


def _write_block(store: Store, broker_id: int, start_after: Callable[[int | None], int]) -> range:
    """Write a block that begins at `start_after(the last id of the block before; None: there is no such node)`."""
    for _ in range(CLAIMS):
        node = find_node(store, BLOCK)
        start = start_after(int(json.loads(node.data)["block_end"]) if node else None)
        if start > MAX_LONG - BLOCK_SIZE:
            raise StoreError(f"all producer ids have been given out up to {start - 1}")
        block = range(start, start + BLOCK_SIZE)
        try:
            if node is None:
                store.create(BLOCK, _encode(broker_id, block))
            else:
                store.set(BLOCK, _encode(broker_id, block), node.version)
            return block
        except (NodeExists, BadVersion):
            continue  # another broker has taken that block
    raise StoreError(f"{CLAIMS} times another broker was quicker")


def _encode(broker_id: int, block: range) -> bytes:
    value = {"version": 1, "broker": broker_id, "block_start": str(block.start), "block_end": str(block.stop - 1)}
    return encode_json(value)
