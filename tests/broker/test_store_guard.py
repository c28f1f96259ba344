"""A cluster store that is emptied while a broker runs: the broker reports it, and no topic counts as deleted."""

from __future__ import annotations

import asyncio
import logging
from uuid import UUID

import pytest

from sparklog.base.errors import BrokerNotAvailable, LostStates
from sparklog.base.topic_config import TopicConfig
from sparklog.broker import store_guard
from sparklog.broker.store_guard import StoreGuard
from sparklog.cluster.identity import STORE_ID, find_or_create_store_id
from sparklog.cluster.memory import MemoryStore, MemoryTree
from sparklog.cluster.store import subtree
from sparklog.cluster.topics import TopicStore
from support import patience
from support.patience import PATIENCE_MS


class World:
    """A guard of a store in memory, and its reports."""

    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.store = MemoryStore(self.tree, call_soon=asyncio.get_running_loop().call_soon_threadsafe)
        find_or_create_store_id(self.store, "first")
        self.lost = 0
        self.done = 0
        self.topics = TopicStore(self.store, TopicConfig())
        self.topics.make_paths()
        self.guard = StoreGuard(self.store, self.topics, "first", self._lost)

    def _lost(self) -> None:
        self.lost += 1

    async def do(self) -> None:
        self.done += 1

    def empty(self) -> None:
        for path in subtree(self.store, "/cluster"):
            self.store.delete(path)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store_guard, "SURE_S", 0.01)
    monkeypatch.setattr(store_guard, "RETRY_S", 0.01)
    made = World()
    made.guard.start()
    yield made
    await made.guard.stop()


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_the_loss_of_the_stores_id_is_reported_once(
    world: World, caplog: pytest.LogCaptureFixture, is_replaced: bool
) -> None:
    assert world.guard.is_intact()
    world.empty()
    if is_replaced:
        find_or_create_store_id(world.store, "second")
    with caplog.at_level(logging.CRITICAL):
        await patience.until(lambda: world.lost == 1, "the broker is told")
    assert world.guard.is_lost
    assert not world.guard.is_intact()
    told = "is second" if is_replaced else "is empty"
    assert f"the cluster store has lost everything: it was first, and {told}" in caplog.text


@pytest.mark.parametrize("is_emptied", [False, True])
async def test_lost_states_are_recorded_and_reported_once(
    world: World, caplog: pytest.LogCaptureFixture, is_emptied: bool
) -> None:
    world.topics.add("t", UUID(int=1), [[1]], {})
    for _ in range(2):
        world.guard.lose_states(LostStates(["t", "deleted"], "the cluster store has lost the states of t-0"))
    assert not world.guard.is_intact()
    if is_emptied:
        world.empty()
    with caplog.at_level(logging.CRITICAL):
        await patience.until(lambda: world.lost == 1, "the broker is told")
    assert "the cluster store has lost the states of t-0. All records are still here" in caplog.text
    assert world.topics.is_unsure("t") is not is_emptied
    assert not world.topics.exists("deleted")


async def test_an_id_that_is_written_again_is_no_loss(world: World) -> None:
    for _ in range(3):
        world.store.set(STORE_ID, world.store.get(STORE_ID).data)
    world.guard.when_sure(["t"], world.do)
    await patience.until(lambda: world.done == 1, "it is sure")
    assert (world.lost, world.guard.is_lost) == (0, False)


async def test_an_unreachable_store_is_read_again(world: World) -> None:
    world.store.disconnect()
    world.guard.when_sure(["t"], world.do)
    waiting = asyncio.create_task(world.guard.until_sure("t", PATIENCE_MS))
    await asyncio.sleep(0.05)
    assert (world.done, waiting.done()) == (0, False)
    world.store.reconnect()
    await waiting
    await patience.until(lambda: world.done == 1, "it is sure")
    assert world.lost == 0


async def test_topics_of_a_lost_store_are_not_taken_for_deleted(world: World) -> None:
    world.guard.when_sure(["gone"], world.do)
    await asyncio.sleep(0)
    world.empty()
    with pytest.raises(BrokerNotAvailable, match="may have lost topic 'gone'"):
        await world.guard.until_sure("gone", PATIENCE_MS)
    await patience.until(lambda: world.lost == 1, "the broker is told")
    assert world.done == 0
    with pytest.raises(BrokerNotAvailable):
        await world.guard.until_sure("another", PATIENCE_MS)


async def test_a_creation_waits_at_most_for_its_timeout(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_guard, "SURE_S", 3_600)
    world.guard.when_sure(["gone"], world.do)
    await asyncio.sleep(0)
    await world.guard.until_sure("other", PATIENCE_MS)
    with pytest.raises(BrokerNotAvailable):
        await world.guard.until_sure("gone", 1)
