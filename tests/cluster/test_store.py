"""The contract of every cluster store; an engine passes it by being named in the `store` fixture."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.base.errors import BadVersion, NodeExists, NoNode, NotEmpty
from sparklog.cluster.sqlite import SqliteStore
from sparklog.cluster.store import Check, Create, Delete, Node, Set, Store, ensure_path, parent_of, subtree


@pytest.fixture(params=["sqlite file", "sqlite memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    path = str(tmp_path / "cluster.sqlite") if request.param == "sqlite file" else ":memory:"
    opened = SqliteStore(path)
    yield opened
    opened.close()


def test_a_node_is_created_read_changed_and_deleted(store: Store) -> None:
    store.create("/a", b"one")
    assert store.get("/a") == Node(b"one", 0)
    assert store.set("/a", b"two") == 1
    assert store.get("/a") == Node(b"two", 1)
    store.delete("/a")
    assert not store.exists("/a")


def test_children_are_names_in_order_and_direct_ones_only(store: Store) -> None:
    for path in ("/t", "/t/b", "/t/a", "/t/a/deep", "/tt"):
        store.create(path)
    assert store.children("/t") == ["a", "b"]
    assert store.children("/") == ["t", "tt"]
    assert store.children("/t/b") == []


def test_a_node_needs_its_parent_and_must_be_new(store: Store) -> None:
    with pytest.raises(NoNode):
        store.create("/a/b")
    store.create("/a")
    with pytest.raises(NodeExists):
        store.create("/a")


def test_what_is_not_there_cannot_be_read_changed_or_deleted(store: Store) -> None:
    for call in (store.get, store.children, store.delete, lambda path: store.set(path, b"")):
        with pytest.raises(NoNode):
            call("/nothing")


def test_a_write_insists_on_the_version_it_has_read(store: Store) -> None:
    store.create("/a", b"one")
    store.set("/a", b"two", 0)
    for write in (lambda: store.set("/a", b"three", 0), lambda: store.delete("/a", 0)):
        with pytest.raises(BadVersion):
            write()
    assert store.get("/a") == Node(b"two", 1)
    store.delete("/a", 1)


def test_a_node_with_children_stays(store: Store) -> None:
    store.create("/a")
    store.create("/a/b")
    with pytest.raises(NotEmpty):
        store.delete("/a")


def test_multi_does_everything(store: Store) -> None:
    store.create("/old")
    store.multi((Create("/a", b"1"), Create("/a/b"), Set("/a", b"2", 0), Check("/a", 1), Delete("/old", 0)))
    assert store.get("/a") == Node(b"2", 1)
    assert store.children("/") == ["a"]


def test_multi_does_nothing_if_one_operation_cannot_be_done(store: Store) -> None:
    store.create("/a", b"1")
    with pytest.raises(BadVersion):
        store.multi((Set("/a", b"2"), Create("/b"), Check("/a", 0)))
    assert store.get("/a") == Node(b"1", 0)
    assert not store.exists("/b")


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


def test_ensure_path_makes_what_is_missing(store: Store) -> None:
    ensure_path(store, "/x/y/z")
    ensure_path(store, "/x/y/z")
    assert store.children("/x/y") == ["z"]


def test_a_subtree_lists_children_before_parents(store: Store) -> None:
    ensure_path(store, "/x/y/z")
    assert subtree(store, "/x") == ["/x/y/z", "/x/y", "/x"]


def test_the_root_has_no_parent() -> None:
    assert [parent_of(path) for path in ("/a/b", "/a", "/")] == ["/a", "/", ""]


def test_a_file_is_shared_and_survives_its_writer(tmp_path: Path) -> None:
    path = str(tmp_path / "cluster.sqlite")
    first, second = SqliteStore(path), SqliteStore(path)
    first.create("/a", b"one")
    assert second.set("/a", b"two", 0) == 1
    first.close()
    second.close()
    reopened = SqliteStore(path)
    assert reopened.get("/a") == Node(b"two", 1)
    reopened.close()
