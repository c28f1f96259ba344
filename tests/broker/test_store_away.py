"""A broker whose cluster store is away, or has ended its session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sparklog.base.errors import RequestTimedOut
from sparklog.base.ids import TopicPartition
from sparklog.broker.registration import Registration
from sparklog.cluster import brokers, elections
from sparklog.cluster.brokers import BROKER_IDS, DISK_EVENTS
from sparklog.cluster.memory import MemoryStore, MemoryTree
from sparklog.cluster.model import BrokerInfo
from sparklog.cluster.store import ensure_path
from sparklog.replica import isr_changes
from support.brokers.on_one_loop import BrokersOnOneLoop
from support.controller.fake_brokers import LoopClock
from support.controller.virtual_time import simulated
from support.patience import PATIENCE_MS, until

Batch = Callable[..., bytearray]


@pytest.fixture
async def store(world: Any) -> MemoryStore:
    """The world of a broker that has started and has a topic t."""
    await world.start()
    await world.create("t")
    store = world.broker._startup.store
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


async def test_a_broker_is_not_ready_from_the_end_of_its_session_until_its_new_registration(
    world: Any, store: MemoryStore
) -> None:
    broker = world.broker
    assert broker.not_ready == ""
    store.disconnect()
    assert broker.not_ready == "", "records are written and read without the store"
    store.reconnect()
    with world.tree.lock:  # the threads that register it wait
        world.tree.expire(store.session_id)
        await until(lambda: "not in its cluster" in broker.not_ready, "its session is known to have ended")
    await until(lambda: not broker.not_ready, "the controller knows its new registration")


@pytest.mark.slow
async def test_an_isr_change_is_written_once_the_store_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(isr_changes, "TRIES", 1)
    cluster = BrokersOnOneLoop(replica_lag_time_max_ms="1000000")  # no leader checks for lagging followers meanwhile
    await cluster.start(3, 1, 2)
    metadata = cluster.brokers[3].services.metadata
    assert await metadata.wait_until(lambda: len(metadata.brokers) == 3, PATIENCE_MS)
    await cluster.create("t", [[1, 2]])
    await cluster.stop(2)
    name = TopicPartition("t", 0)
    await cluster.until_led(name, 1, isr={1})
    store = cluster.brokers[1]._startup.store
    assert isinstance(store, MemoryStore)
    store.disconnect()
    await cluster.start(2)
    changes = cluster.brokers[1].services.replicas.isr_changes
    await until(lambda: changes.failures and not changes._running, "the change has failed")
    store.reconnect()
    await cluster.until_led(name, 1, isr={1, 2})
    await cluster.stop_all()


async def test_the_state_of_the_store_is_a_metric(world: Any, store: MemoryStore) -> None:
    def figure(name: str) -> int:
        return world.broker.figures()[name]

    assert figure("store_connected") == 1
    store.disconnect()
    await until(lambda: figure("store_connected") == 0, "the store is known to be away")
    store.reconnect()
    await until(lambda: figure("store_connected") == 1, "the store is back")
    assert figure("store_sessions_expired_total") == 0
    world.tree.expire(store.session_id)
    await until(lambda: figure("store_sessions_expired_total") == 1, "the end of the session is counted")
    await until(lambda: figure("store_connected") == 1, "another session has begun")


@simulated
async def test_the_controller_hears_of_a_failed_disk_however_long_the_store_was_away() -> None:
    tree, clock = MemoryTree(), LoopClock()
    store, others = MemoryStore(tree), MemoryStore(tree)
    ensure_path(store, BROKER_IDS)
    info = BrokerInfo(broker_id=1, grpc_address="b1:1", listeners={}, rack="", version="1")
    registration = Registration(store, info, "directory-1", clock, timeout_ms=1)
    store.disconnect()
    registration.report_failed_disk()
    await asyncio.sleep(120)
    store.reconnect()
    await asyncio.sleep(1)

    assert len(others.children(DISK_EVENTS)) == 1
    await registration.stop()
