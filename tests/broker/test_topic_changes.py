"""Changes of topics whose clients disconnect before the end."""

from __future__ import annotations

import asyncio
import threading
from uuid import UUID

import pytest

from sparklog.base.errors import UnknownTopicOrPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.cluster.memory import MemoryStore
from sparklog.cluster.topics import DELETIONS, TopicStore
from support.patience import PATIENCE_MS, PATIENCE_S


class Gate:
    """Blocks one call of a function until the test opens the gate."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> None:
        self.reached = threading.Event()
        self.may_go_on = threading.Event()
        call = getattr(owner, name)

        def wait_and_call(*args: object) -> object:
            self.reached.set()
            assert self.may_go_on.wait(PATIENCE_S)
            return call(*args)

        monkeypatch.setattr(owner, name, wait_and_call)


async def cancel_at(gate: Gate, change: asyncio.Task[object]) -> None:
    """Cancel the task of the change while its thread waits at the gate, then open the gate."""
    assert await asyncio.to_thread(gate.reached.wait, PATIENCE_S)
    change.cancel()
    with pytest.raises(asyncio.CancelledError):
        await change
    gate.may_go_on.set()


async def test_a_topic_is_created_though_its_client_has_disconnected(world, monkeypatch) -> None:
    broker = await world.start()
    topics = broker.services.topics
    gate = Gate(monkeypatch, TopicStore, "add")

    await cancel_at(gate, asyncio.create_task(topics.create("orders")))

    await topics.wait_for("orders")
    assert "orders" in broker.services.metadata


async def test_a_topic_is_deleted_though_its_client_has_disconnected(world, monkeypatch) -> None:
    broker = await world.start()
    await world.create("orders")
    topics, metadata = broker.services.topics, broker.services.metadata
    gate = Gate(monkeypatch, TopicStore, "mark_deleted")

    await cancel_at(gate, asyncio.create_task(topics.delete("orders")))
    assert await metadata.wait_until(lambda: "orders" not in metadata, PATIENCE_MS)
    await world.create("orders")  # waits for the end of the deletion, and finds the name free

    assert "orders" in metadata


async def test_a_late_deletion_spares_a_newer_topic_of_the_name(world, monkeypatch) -> None:
    broker = await world.start()
    await world.create("orders")
    topics, metadata = broker.services.topics, broker.services.metadata
    others = MemoryStore(world.tree)
    gate = Gate(monkeypatch, TopicStore, "mark_deleted")
    late = asyncio.create_task(topics.delete("orders"))
    assert await asyncio.to_thread(gate.reached.wait, PATIENCE_S)
    others.create(f"{DELETIONS}/orders")
    assert await topics.until_removed("orders", PATIENCE_MS)
    TopicStore(others, TopicConfig()).add("orders", UUID(int=1), [(broker.config.broker_id,)], {})

    gate.may_go_on.set()
    await late
    await topics.wait_for("orders")

    assert not others.exists(f"{DELETIONS}/orders")
    assert metadata.get("orders").topic_id == UUID(int=1)


async def test_a_broker_that_stops_finishes_what_it_is_writing(world, monkeypatch) -> None:
    topics = (await world.start()).services.topics
    gate = Gate(monkeypatch, TopicStore, "add")
    await cancel_at(gate, asyncio.create_task(topics.create("orders")))
    await world.broker.stop()

    restarted = await world.start()
    assert "orders" in restarted.services.metadata


async def test_the_error_of_a_change_is_raised(world) -> None:
    topics = (await world.start()).services.topics
    with pytest.raises(UnknownTopicOrPartition):
        await topics.delete("nowhere")
