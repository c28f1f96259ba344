"""Producer ids, which are never given twice, across restarts and brokers (Kafka's ZkProducerIdManager).

/latest_producer_id_block   {"version": 1, "broker": N, "block_start": "0", "block_end": "999"}

A broker reserves a block of ids by writing the next block to the node, by compare and set. Then it gives the ids out
one by one without a call to the store. The remaining ids of a stopped broker are lost.

Logs also hold producer ids, and may outlive the store or come from Apache Kafka. So a block begins above the ids in
this broker's logs (`above`): a new producer must not get the id of an old one. If the store has lost the last block,
the ids that other brokers have given out are unknown. Then blocks continue at the time of day (`leap`), which is above
them: no cluster gives out a million ids each millisecond.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator

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

    def __init__(self, store: Store, broker_id: int, *, above: int = -1) -> None:
        self._store = store
        self._broker_id = broker_id
        self._above = above
        self._free: Iterator[int] = iter(())
        self._claiming = asyncio.Lock()

    async def next(self) -> int:
        """Return a new id. Raises CoordinatorLoadInProgress, which clients retry, if the store fails."""
        async with self._claiming:
            producer_id = next(self._free, None)
            if producer_id is None:
                try:
                    block = await asyncio.to_thread(claim_block, self._store, self._broker_id, above=self._above)
                except StoreError as error:
                    raise CoordinatorLoadInProgress(f"no producer ids can be reserved: {error}") from error
                self._free = iter(block)
                producer_id = next(self._free)
            return producer_id


def claim_block(store: Store, broker_id: int, *, above: int = -1) -> range:
    """Reserve and return a block of ids for this broker, all greater than `above`. Blocks. Raises StoreError."""
    return _write_block(store, broker_id, lambda last: max(above, last) + 1)


def leap(store: Store, broker_id: int, now_ms: int) -> None:
    """Continue the blocks above all ids that can have been given out until now. Blocks. Raises StoreError."""
    _write_block(store, broker_id, lambda last: max(now_ms << IDS_PER_MS_BITS, last + 1))


def _write_block(store: Store, broker_id: int, start_after: Callable[[int], int]) -> range:
    """Write a block that begins at `start_after(the last id of the block before, or -1)`."""
    for _ in range(CLAIMS):
        node = find_node(store, BLOCK)
        start = start_after(int(json.loads(node.data)["block_end"]) if node else -1)
        if start > MAX_LONG - BLOCK_SIZE:
            raise StoreError(f"all producer ids have been given out up to {start - 1}")
        block = range(start, start + BLOCK_SIZE)
        value = {"version": 1, "broker": broker_id, "block_start": str(block[0]), "block_end": str(block[-1])}
        data = encode_json(value)
        try:
            if node is None:
                store.create(BLOCK, data)
            else:
                store.set(BLOCK, data, node.version)
            return block
        except (NodeExists, BadVersion):
            continue  # another broker has taken that block
    raise StoreError(f"{CLAIMS} times another broker was quicker")
