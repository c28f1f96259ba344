"""A broker whose cluster store is away, or has ended its session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparklog.base.errors import RequestTimedOut
from sparklog.cluster import brokers, elections
from sparklog.cluster.memory import MemoryStore

Batch = Callable[..., bytearray]


@pytest.fixture
async def store(world: Any) -> MemoryStore:
    """That of a broker that has started and has a topic t."""
    await world.start()
    await world.create("t")
    store = world.broker._store
    assert isinstance(store, MemoryStore)
    return store


async def test_records_are_written_and_read_without_the_store(world: Any, store: MemoryStore, batch: Batch) -> None:
    store.disconnect()
    produced = await world.produce("t", batch([b"a"]), acks=-1)
    assert produced.error is None
    assert (await world.fetch("t", 0)).error is None
    with pytest.raises(RequestTimedOut, match="store"):
        await world.create("another")
    store.reconnect()
    await world.create("another")


async def test_a_broker_whose_session_has_expired_registers_and_leads_again(
    world: Any, store: MemoryStore, batch: Batch
) -> None:
    services = world.broker.services
    before = services.registration.epoch
    world.tree.expire(store.session_id)

    def leads_anew() -> bool:
        info = services.metadata.brokers.get(0)
        return info is not None and info.epoch > before and services.metadata.get("t").partitions[0].leader == 0

    assert await services.metadata.wait_until(leads_anew, 20_000)
    assert brokers.load(store)[0].epoch == services.registration.epoch
    assert elections.find_controller(store) == 0
    assert (await world.produce("t", batch([b"a"]), acks=-1)).error is None
