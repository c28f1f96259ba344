"""A broker that starts while its cluster store is being emptied: no topic counts as deleted."""

from __future__ import annotations

import asyncio
import os

import pytest

from sparklog.base.errors import StoreError
from sparklog.broker import store_startup
from sparklog.cluster.memory import MemoryStore
from sparklog.cluster.store import subtree

SURE_S = 0.0123
"""A time that no other task sleeps for."""


@pytest.fixture(autouse=True)
def sure_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_startup, "SURE_S", SURE_S)


def delete(store: MemoryStore, path: str) -> None:
    for each in subtree(store, path):
        store.delete(each)


async def test_topic_folders_stay_and_the_next_start_restores_the_topics(
    world, batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.start()
    await world.create("t")
    assert (await world.produce("t", batch([b"kept"]))).error is None
    await world.broker.stop()
    store = MemoryStore(world.tree)
    delete(store, "/brokers/topics/t")
    sleep = asyncio.sleep

    async def meanwhile(seconds: float) -> None:
        if seconds == SURE_S:  # what the broker waits before it takes a topic for deleted
            delete(store, "/cluster")
        await sleep(seconds)

    with monkeypatch.context() as patch:
        patch.setattr(store_startup.asyncio, "sleep", meanwhile)
        with pytest.raises(StoreError, match="has just lost everything, t included: start again"):
            await world.start()
    await world.broker.stop()
    assert "t-0" in os.listdir(world.folder)

    await world.start()
    found = await world.fetch("t", 0)
    assert found.error is None
    assert found.high_watermark == 1


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_only_a_start_with_missing_topics_waits(world, monkeypatch: pytest.MonkeyPatch, is_deleted: bool) -> None:
    await world.start()
    await world.create("t")
    await world.broker.stop()
    if is_deleted:
        delete(MemoryStore(world.tree), "/brokers/topics/t")
    waited: list[float] = []
    sleep = asyncio.sleep

    async def count(seconds: float) -> None:
        waited.append(seconds)
        await sleep(seconds)

    with monkeypatch.context() as patch:
        patch.setattr(store_startup.asyncio, "sleep", count)
        await world.start()
    assert (SURE_S in waited) == is_deleted
    assert any(name.endswith("-stray") for name in os.listdir(world.folder)) == is_deleted
