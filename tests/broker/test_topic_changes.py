"""Changes of topics whose askers go away before they are done."""

from __future__ import annotations

import asyncio
import threading

import pytest

from sparklog.base.errors import UnknownTopicOrPartition


class Gate:
    """Lets one call of a blocking function through when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> None:
        self.reached = threading.Event()
        self.may_go_on = threading.Event()
        self._call = getattr(owner, name)
        monkeypatch.setattr(owner, name, self._wait_and_call)

    def _wait_and_call(self, *args: object) -> object:
        self.reached.set()
        assert self.may_go_on.wait(30)
        return self._call(*args)


async def cancel_at(gate: Gate, change: asyncio.Task[object]) -> None:
    """Cancel whoever asked for the change while its thread is at the gate, then let the thread go on."""
    assert await asyncio.to_thread(gate.reached.wait, 30)
    change.cancel()
    with pytest.raises(asyncio.CancelledError):
        await change
    gate.may_go_on.set()


async def test_a_topic_is_created_whole_though_its_creator_has_gone(world, monkeypatch) -> None:
    broker = await world.start()
    topics = broker.services.topics
    gate = Gate(monkeypatch, topics, "_create")

    await cancel_at(gate, asyncio.create_task(topics.create("orders")))
    await topics.settled()

    assert "orders" in broker.services.metadata


async def test_a_topic_is_deleted_whole_though_its_deleter_has_gone(world, monkeypatch) -> None:
    broker = await world.start()
    await world.create("orders")
    topics = broker.services.topics
    gate = Gate(monkeypatch, topics, "_delete")

    await cancel_at(gate, asyncio.create_task(topics.delete("orders")))
    await world.create("orders")  # waits for the deletion, and finds the name free

    assert "orders" in broker.services.metadata


async def test_a_broker_that_stops_finishes_the_change_under_way(world, monkeypatch) -> None:
    topics = (await world.start()).services.topics
    gate = Gate(monkeypatch, topics, "_create")
    await cancel_at(gate, asyncio.create_task(topics.create("orders")))
    await world.broker.stop()

    restarted = await world.start()
    assert "orders" in restarted.services.metadata


async def test_what_is_wrong_with_a_change_comes_back(world) -> None:
    topics = (await world.start()).services.topics
    with pytest.raises(UnknownTopicOrPartition):
        await topics.delete("nowhere")
