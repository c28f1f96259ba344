"""The contract of every cluster store; an engine passes it by being named in the `engine` fixture."""

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from sparklog.base.errors import BadVersion, NodeExists, NoNode, NotEmpty, StoreError
from sparklog.cluster.store import (
    NO_OWNER,
    Check,
    Create,
    Delete,
    Operation,
    SessionState,
    Set,
    Store,
    ensure_path,
    ensure_paths,
    parent_of,
    subtree,
)
from support.processes.zookeeper import ZooKeeperServer
from support.store_engines import Engine, MemoryEngine, SqliteEngine, Told, ZookeeperEngine, settle

ZOOKEEPER = pytest.param("zookeeper", marks=[pytest.mark.jvm, pytest.mark.slow])


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=["memory", "sqlite", ZOOKEEPER])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    made: Engine
    match request.param:
        case "memory":
            made = MemoryEngine()
        case "sqlite":
            made = SqliteEngine(tmp_path)
        case _:
            made = ZookeeperEngine(request.getfixturevalue("zookeeper"))
    yield made
    made.close()


@pytest.fixture
def store(engine: Engine) -> Iterator[Store]:
    opened = engine.open()
    yield opened
    opened.close()


@pytest.fixture
def other(engine: Engine) -> Iterator[Store]:
    """Another broker's store on the same tree."""
    opened = engine.open()
    yield opened
    opened.close()


def content(store: Store, path: str) -> tuple[bytes, int]:
    node = store.get(path)
    return node.data, node.version


def test_a_node_is_created_read_changed_and_deleted(store: Store) -> None:
    assert store.create("/a", b"one") == "/a"
    assert content(store, "/a") == (b"one", 0)
    assert store.set("/a", b"two") == 1
    assert content(store, "/a") == (b"two", 1)
    store.delete("/a")
    assert not store.exists("/a")


def test_children_are_names_in_order_and_direct_ones_only(store: Store) -> None:
    for path in ("/t", "/t/b", "/t/a", "/t/a/deep", "/tt"):
        store.create(path)
    assert store.children("/t") == ["a", "b"]
    assert [name for name in store.children("/") if name.startswith("t")] == ["t", "tt"]
    assert store.children("/t/b") == []


def test_a_node_needs_its_parent_and_must_be_new(store: Store) -> None:
    with pytest.raises(NoNode):
        store.create("/a/b")
    store.create("/a")
    with pytest.raises(NodeExists):
        store.create("/a")


def test_missing_nodes_cannot_be_read_changed_or_deleted(store: Store) -> None:
    for call in (store.get, store.children, store.delete, lambda path: store.set(path, b"")):
        with pytest.raises(NoNode):
            call("/nothing")
    with pytest.raises(NoNode):
        store.create("/nothing/under_", sequential=True)


def test_a_write_insists_on_the_version_it_has_read(store: Store) -> None:
    store.create("/a", b"one")
    store.set("/a", b"two", 0)
    for write in (lambda: store.set("/a", b"three", 0), lambda: store.delete("/a", 0)):
        with pytest.raises(BadVersion):
            write()
    assert content(store, "/a") == (b"two", 1)
    store.delete("/a", 1)


def test_a_node_with_children_stays(store: Store) -> None:
    store.create("/a")
    store.create("/a/b")
    with pytest.raises(NotEmpty):
        store.delete("/a")


def test_multi_does_everything(store: Store) -> None:
    store.create("/old")
    store.multi((Create("/a", b"1"), Create("/a/b"), Set("/a", b"2", 0), Check("/a", 1), Delete("/old", 0)))
    assert content(store, "/a") == (b"2", 1)
    assert not store.exists("/old")


@pytest.mark.parametrize(
    ("last", "error"),
    [
        (Check("/a", 0), BadVersion),
        (Check("/nothing", 0), NoNode),
        (Create("/a"), NodeExists),
        (Delete("/nothing"), NoNode),
        (Delete("/a"), NotEmpty),
        (Set("/nothing", b""), NoNode),
    ],
)
def test_multi_does_nothing_if_one_operation_cannot_be_done(store: Store, last: Check, error: type[Exception]) -> None:
    store.multi((Create("/a", b"1"), Create("/a/gone")))
    with pytest.raises(error):
        store.multi((Set("/a", b"2"), Delete("/a/gone"), Create("/a/b"), Create("/b", ephemeral=True), last))
    assert content(store, "/a") == (b"1", 0)
    assert store.children("/a") == ["gone"]
    assert not store.exists("/b")


def test_a_failed_multi_calls_no_watches(store: Store) -> None:
    told = Told()
    store.create("/a")
    store.get("/a", told)
    store.children("/a", told)
    with pytest.raises(BadVersion):
        store.multi((Set("/a", b"2"), Create("/a/b"), Check("/a", 0)))
    settle(store)
    assert told.rest() == []


def test_a_failed_write_leaves_the_store_usable(store: Store) -> None:
    with pytest.raises(NoNode):
        store.set("/a", b"")
    store.create("/a")
    assert store.exists("/a")


def test_of_many_writers_with_one_version_exactly_one_succeeds(store: Store) -> None:
    store.create("/a")
    outcomes: list[bool] = []

    def write() -> None:
        try:
            store.set("/a", b"mine", 0)
            outcomes.append(True)
        except BadVersion:
            outcomes.append(False)

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [False] * 7 + [True]


def test_sequential_nodes_are_numbered_by_what_was_created_under_their_parent(store: Store, other: Store) -> None:
    store.create("/s")
    assert store.create("/s/n_", b"x", sequential=True) == "/s/n_0000000000"
    assert other.create("/s/n_", sequential=True) == "/s/n_0000000001"
    store.delete("/s/n_0000000001")
    store.create("/s/other")
    with pytest.raises(NodeExists):
        store.create("/s/other")
    assert store.create("/s/n_", ephemeral=True, sequential=True) == "/s/n_0000000003"
    store.multi((Create("/s/n_", b"y", sequential=True), Create("/s/n_", b"z", sequential=True)))
    assert content(store, "/s/n_0000000005") == (b"z", 0)
    assert content(store, "/s/n_0000000000") == (b"x", 0)


def test_a_later_node_has_a_greater_created(store: Store, other: Store) -> None:
    store.create("/a")
    other.create("/b")
    before = store.get("/b").created
    assert before > store.get("/a").created > 0
    store.set("/a", b"changed")
    store.delete("/b")
    store.create("/b")
    assert store.get("/b").created > before
    store.multi((Delete("/a"), Create("/a", ephemeral=True)))
    assert store.get("/a").created > store.get("/b").created


def test_an_ephemeral_node_is_deleted_with_its_session(engine: Engine, store: Store) -> None:
    leaving = engine.open()
    leaving.create("/e", ephemeral=True)
    leaving.multi((Create("/p"), Create("/p/e", ephemeral=True)))
    assert store.get("/e").owner == store.get("/p/e").owner == leaving.session_id
    assert store.get("/p").owner == NO_OWNER
    leaving.close()
    assert not store.exists("/e")
    assert store.children("/p") == []


def test_an_ephemeral_node_has_no_children(store: Store) -> None:
    store.create("/e", ephemeral=True)
    with pytest.raises(StoreError):
        store.create("/e/below")


def test_sessions_of_stores_are_their_own(store: Store, other: Store) -> None:
    assert len({store.session_id, other.session_id, NO_OWNER}) == 3


def test_an_ephemeral_node_may_be_deleted_by_others(store: Store, other: Store) -> None:
    store.create("/e", ephemeral=True)
    other.multi((Delete("/e"), Create("/e", b"mine", ephemeral=True)))
    assert store.get("/e").owner == other.session_id


def test_get_tells_of_a_change_and_of_deletion(store: Store, other: Store) -> None:
    told = Told()
    store.create("/a")
    store.get("/a", told)
    other.set("/a", b"")
    assert told.next() == "/a"
    store.get("/a", told)
    other.delete("/a")
    assert told.next() == "/a"


def test_exists_tells_of_creation_change_and_deletion(store: Store, other: Store) -> None:
    told = Told()
    for change in (lambda: other.create("/a"), lambda: other.set("/a", b""), lambda: other.delete("/a")):
        store.exists("/a", told)
        change()
        assert told.next() == "/a"


def test_children_tells_of_creation_and_deletion_below(store: Store, other: Store) -> None:
    told = Told()
    store.create("/p")
    for change in (lambda: other.create("/p/a"), lambda: other.delete("/p/a"), lambda: other.delete("/p")):
        store.children("/p", told)
        change()
        assert told.next() == "/p"


def test_children_does_not_tell_of_data_nor_get_of_children(store: Store) -> None:
    told = Told()
    ensure_path(store, "/p/a/b")
    store.children("/p", told)
    store.get("/p", told)
    store.set("/p/a", b"")
    store.delete("/p/a/b")
    store.create("/p/a/c")
    settle(store)
    assert told.rest() == []


def test_a_watch_is_called_once(store: Store, other: Store) -> None:
    told = Told()
    store.create("/a")
    store.get("/a", told)
    for _ in range(3):
        other.set("/a", b"")
    assert told.next() == "/a"
    settle(store)
    assert told.rest() == []


def test_own_changes_call_watches_too(store: Store) -> None:
    told = Told()
    store.exists("/a", told)
    store.create("/a")
    assert told.next() == "/a"


def test_a_read_that_fails_sets_no_watch(store: Store) -> None:
    told = Told()
    for read in (store.get, store.children):
        with pytest.raises(NoNode):
            read("/a", told)
    store.create("/a")
    store.create("/a/b")
    settle(store)
    assert told.rest() == []


def test_no_change_is_missed_between_reading_and_watching(store: Store, other: Store) -> None:
    last = 20
    store.create("/n", b"0")
    writer = threading.Thread(target=lambda: [other.set("/n", str(number + 1).encode()) for number in range(last)])
    writer.start()
    told = Told()
    while store.get("/n", told).data != str(last).encode():
        assert told.next() == "/n"
    writer.join()


def test_the_deletion_of_a_sessions_nodes_calls_watches(engine: Engine, store: Store) -> None:
    told = Told()
    leaving = engine.open()
    leaving.create("/e", ephemeral=True)
    store.get("/e", told)
    engine.expire(leaving)
    assert told.next() == "/e"


def test_an_expiry_is_reported_and_another_session_begins(engine: Engine, store: Store, other: Store) -> None:
    states, told = Told(), Told()
    store.listen(states)
    expired = store.session_id
    store.create("/e", ephemeral=True)
    other.create("/stays")
    store.get("/stays", told)
    store.exists("/nothing", told)
    engine.expire(store)
    while (state := states.next()) is not SessionState.EXPIRED:
        assert state is SessionState.SUSPENDED
    assert {told.next(), told.next()} == {"/stays", "/nothing"}
    assert states.next() is SessionState.CONNECTED
    assert store.session_id != expired
    assert not store.exists("/e")
    store.create("/e", ephemeral=True)
    assert other.get("/e").owner == store.session_id
    other.set("/stays", b"")
    settle(store)
    assert told.rest() == []


def test_a_closed_store_refuses(engine: Engine) -> None:
    closed = engine.open()
    closed.create("/e", ephemeral=True)
    closed.close()
    with pytest.raises(StoreError):
        closed.get("/e")


def test_ensure_path_makes_what_is_missing(store: Store) -> None:
    ensure_path(store, "/x/y/z")
    ensure_path(store, "/x/y/z")
    assert store.children("/x/y") == ["z"]


def test_paths_that_share_ancestors_are_made_together_and_what_there_is_stays(store: Store) -> None:
    store.create("/x", b"kept")
    ensure_paths(store, ("/x/y/z", "/x/y", "/x/y/w", "/v", "/"))
    assert (store.children("/x/y"), store.exists("/v"), store.get("/x").data) == (["w", "z"], True, b"kept")


def test_concurrent_creations_of_a_path_succeed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    multi = store.multi

    def too_late(operations: Iterable[Operation]) -> None:
        monkeypatch.undo()
        store.create("/x")
        multi(operations)

    monkeypatch.setattr(store, "multi", too_late)
    ensure_paths(store, ("/x/y", "/w"))
    assert (store.children("/x"), store.exists("/w")) == (["y"], True)


def test_a_subtree_lists_children_before_parents(store: Store) -> None:
    ensure_path(store, "/x/y/z")
    assert subtree(store, "/x") == ["/x/y/z", "/x/y", "/x"]


def test_the_root_has_no_parent() -> None:
    assert [parent_of(path) for path in ("/a/b", "/a", "/")] == ["/a", "/", ""]


def test_the_newest_change_has_a_greater_number_than_those_before(store: Store, other: Store) -> None:
    store.create("/a")
    seen = [store.newest_change()]
    store.set("/a", b"1")
    seen.append(store.newest_change())
    store.delete("/a")
    seen.append(store.newest_change())
    assert seen == sorted(set(seen))
    other.exists("/a")
    assert other.newest_change() >= seen[-1]
