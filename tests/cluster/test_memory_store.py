"""The faults that tests inject into a store in memory; simulations inject them at random."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparklog.base.errors import ConnectionLoss, SessionExpired
from sparklog.cluster.memory import MemoryStore, MemoryTree
from sparklog.cluster.store import SessionState
from support.store_engines import Told


@pytest.fixture
def tree() -> MemoryTree:
    return MemoryTree()


def test_missed_watches_are_called_on_reconnection(tree: MemoryTree) -> None:
    store, other, told, states = MemoryStore(tree), MemoryStore(tree), Told(), Told()
    store.listen(states)
    store.create("/e", ephemeral=True)
    store.exists("/a", told)
    store.disconnect()
    with pytest.raises(ConnectionLoss):
        store.get("/e")
    other.create("/a")
    assert told.rest() == []
    store.reconnect()
    assert told.rest() == ["/a"]
    assert states.rest() == [SessionState.SUSPENDED, SessionState.CONNECTED]
    assert store.exists("/e")


def test_an_expiry_without_a_connection_is_reported_on_reconnection(tree: MemoryTree) -> None:
    store, other, told, states = MemoryStore(tree), MemoryStore(tree), Told(), Told()
    store.listen(states)
    store.create("/e", ephemeral=True)
    store.exists("/a", told)
    store.exists("/b", told)
    store.disconnect()
    tree.expire(store.session_id)
    assert not other.exists("/e")
    other.create("/a")
    assert states.rest() == [SessionState.SUSPENDED]
    store.reconnect()
    assert states.rest() == [SessionState.EXPIRED, SessionState.CONNECTED]
    assert sorted(map(str, told.rest())) == ["/a", "/b"]
    store.create("/e", ephemeral=True)


def test_watches_are_called_through_call_soon(tree: MemoryTree) -> None:
    later: list[Callable[[], None]] = []
    store, other, told = MemoryStore(tree, call_soon=later.append), MemoryStore(tree), Told()
    store.listen(told)
    store.exists("/a", told)
    other.create("/a")
    tree.expire(store.session_id)
    with pytest.raises(SessionExpired):
        store.exists("/a")
    assert told.rest() == []
    while later:
        later.pop(0)()
    assert told.rest() == ["/a", SessionState.EXPIRED, SessionState.CONNECTED]
    assert store.exists("/a")


def test_a_write_with_a_lost_answer_is_done(tree: MemoryTree) -> None:
    store = MemoryStore(tree)
    store.lose_next_answer()
    with pytest.raises(ConnectionLoss):
        store.create("/a")
    assert store.exists("/a")


def test_a_killed_process_keeps_its_nodes_until_its_session_expires(tree: MemoryTree) -> None:
    killed, other, told = MemoryStore(tree), MemoryStore(tree), Told()
    killed.create("/e", ephemeral=True)
    killed.exists("/a", told)
    killed.listen(told)
    killed.abandon()
    other.create("/a")
    assert other.exists("/e")
    tree.expire(killed.session_id)
    assert not other.exists("/e")
    assert told.rest() == []
