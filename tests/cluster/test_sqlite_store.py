"""Details of the SQLite engine: leases, a locked file, files of earlier versions, changes that are no longer kept."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparklog.base.errors import ConnectionLoss, SessionExpired, StoreError
from sparklog.cluster import sqlite_tree
from sparklog.cluster.sqlite import OtherSessions, SqliteStore
from sparklog.cluster.sqlite_tree import SessionRow
from sparklog.cluster.store import NO_OWNER, SessionState
from support.patience import PATIENCE_S, wait_until
from support.store_engines import Told

pytestmark = pytest.mark.slow

Open = Callable[..., SqliteStore]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "cluster.sqlite")


@pytest.fixture
def open_store(path: str) -> Iterator[Open]:
    opened: list[SqliteStore] = []

    def open_store(session_timeout_ms: int = 60_000) -> SqliteStore:
        opened.append(SqliteStore.open(path, session_timeout_ms=session_timeout_ms))
        return opened[-1]

    yield open_store
    for store in opened:
        store.close()


def test_a_file_survives_its_writer(open_store: Open) -> None:
    first = open_store()
    first.create("/a", b"one")
    first.close()
    assert open_store().get("/a").data == b"one"


def test_a_tool_that_only_reads_and_writes_leaves_no_session(open_store: Open, path: str) -> None:
    threads = threading.active_count()
    store = open_store()
    store.create("/a")
    assert store.children("/") == ["a"]
    assert threading.active_count() == threads
    assert sqlite3.connect(path).execute("SELECT count(*) FROM session").fetchone() == (0,)


def test_a_write_is_on_the_disk_when_it_returns(open_store: Open, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store()
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino))
    for number, write in enumerate(
        (lambda: store.create("/a"), lambda: store.set("/a", b"1"), lambda: store.delete("/a")), start=1
    ):
        write()
        assert synced == [os.stat(f"{path}-wal").st_ino] * number
    store.get("/")
    assert len(synced) == 3


def test_a_disk_that_fails_is_a_lost_connection(open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    store = open_store()
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ConnectionLoss, match="Input/output"):
        store.create("/a")


def test_a_file_from_before_there_were_sessions_is_upgraded(open_store: Open, path: str) -> None:
    old = sqlite3.connect(path)
    old.executescript(
        """PRAGMA journal_mode=WAL;
        CREATE TABLE node (
            path TEXT PRIMARY KEY, parent TEXT NOT NULL, data BLOB NOT NULL, version INTEGER NOT NULL
        ) WITHOUT ROWID;
        CREATE INDEX node_parent ON node (parent);
        INSERT INTO node VALUES ('/', '', x'', 0), ('/a', '/', x'6f6c64', 7);"""
    )
    old.close()
    for store in (open_store(), open_store()):
        node = store.get("/a")
        assert (node.data, node.version, node.owner) == (b"old", 7, NO_OWNER)
    assert store.create("/a/n_", sequential=True) == "/a/n_0000000000"
    store.create("/e", ephemeral=True)
    assert store.get("/e").created > store.get("/a").created


def test_a_write_of_an_expired_session_is_refused(open_store: Open) -> None:
    store, other = open_store(), open_store()
    store.create("/a")
    expired = store.session_id
    busy, go_on, states = threading.Event(), threading.Event(), Told()
    store.listen(states)
    store.exists("/busy", lambda _: (busy.set(), go_on.wait(PATIENCE_S)))
    store.create("/busy")
    assert busy.wait(PATIENCE_S)  # the store's thread is held up, as if the process had been stopped
    other.end_session(expired)
    for write in (lambda: store.set("/a", b""), lambda: store.create("/e", ephemeral=True)):
        with pytest.raises(SessionExpired):
            write()
    go_on.set()
    assert [states.next(), states.next()] == [SessionState.EXPIRED, SessionState.CONNECTED]
    store.create("/e", ephemeral=True)
    assert store.session_id != expired


def children_between_tries(store: SqliteStore) -> list[str]:
    """Read again while the store's own thread holds the file: calls then fail at once."""

    def names() -> list[str] | None:
        with contextlib.suppress(ConnectionLoss):
            return store.children("/")
        return None

    return wait_until(names, "the names can be read")


@pytest.mark.slow
def test_a_locked_file_suspends_all_sessions_and_ends_none(open_store: Open, path: str) -> None:
    stores = [open_store(session_timeout_ms=4_000) for _ in range(2)]
    states = [Told(), Told()]
    for number, store in enumerate(stores):
        store.listen(states[number])
        store.create(f"/e{number}", ephemeral=True)
    locking = sqlite3.connect(path, isolation_level=None, timeout=PATIENCE_S)
    locking.execute("BEGIN IMMEDIATE")
    assert [told.next() for told in states] == [SessionState.SUSPENDED] * 2
    with pytest.raises(ConnectionLoss):
        stores[0].create("/a")
    assert children_between_tries(stores[0]) == ["e0", "e1"]
    with pytest.raises(ConnectionLoss):
        stores[1].set("/e0", b"")
    locking.execute("ROLLBACK")
    locking.close()
    assert [told.next() for told in states] == [SessionState.CONNECTED] * 2
    assert stores[0].children("/") == ["e0", "e1"]


@pytest.mark.slow
def test_a_session_without_renewals_expires(open_store: Open, path: str) -> None:
    """The session of a killed process, in the file that this process opens."""
    store = open_store(session_timeout_ms=4_000)
    store.create("/e", ephemeral=True)
    left = sqlite3.connect(path, isolation_level=None, timeout=PATIENCE_S)
    left.execute("INSERT INTO session VALUES (77, 200, 3)")
    left.execute("UPDATE node SET owner = 77 WHERE path = '/e'")
    left.close()
    told = Told()
    assert store.exists("/e", told)
    assert told.next() == "/e"
    assert not store.exists("/e")


def test_a_watch_is_called_where_the_changes_are_no_longer_known(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_tree, "CHANGES_KEPT", 3)
    store, other = open_store(), open_store()
    told, busy, go_on = Told(), threading.Event(), threading.Event()
    store.exists("/busy", lambda _: (busy.set(), go_on.wait(PATIENCE_S)))
    store.create("/busy")
    assert busy.wait(PATIENCE_S)  # it does not look for changes now
    store.exists("/a", told)
    other.create("/a")
    for _ in range(5):
        other.set("/busy", b"")
    go_on.set()
    assert told.next() == "/a"


def test_a_callback_that_fails_is_not_the_end_of_the_others(open_store: Open) -> None:
    told, store = Told(), open_store()
    store.exists("/a", lambda _: 1 / 0)
    store.exists("/a", told)
    store.create("/a")
    assert told.next() == "/a"


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nowhere"):
        SqliteStore.open(str(tmp_path / "nowhere" / "cluster.sqlite"), session_timeout_ms=100)


def test_a_session_is_overdue_when_it_has_stood_still_for_its_timeout() -> None:
    others = OtherSessions()
    beats = {1: 0, 2: 0}

    def overdue(now_ms: float) -> list[int]:
        return others.overdue([SessionRow(number, 1_000, beats[number]) for number in beats], now_ms, 400)

    assert overdue(0) == []
    for now_ms in (300, 600, 900):
        beats[2] += 1
        assert overdue(now_ms) == []
    assert overdue(1_200) == [1]


def test_time_without_renewals_of_the_own_session_counts_little() -> None:
    others = OtherSessions()
    looked = [others.overdue([SessionRow(1, 1_000, 5)], now_ms, 400) for now_ms in (0, 100_000, 100_200)]
    assert looked == [[], [], []]


@pytest.mark.parametrize("is_there", [True, False])
def test_only_its_owner_can_read_the_file(tmp_path: Path, is_there: bool) -> None:
    """It has the users' SCRAM verifiers."""
    path = tmp_path / "cluster.sqlite"
    if is_there:
        SqliteStore.open(str(path)).close()
        path.chmod(0o644)
    store = SqliteStore.open(str(path))
    store.create("/a")
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()}
    store.close()
    assert modes == dict.fromkeys(("cluster.sqlite", "cluster.sqlite-wal", "cluster.sqlite-shm"), 0o600)


def test_only_its_owner_can_read_the_files_of_a_killed_process(tmp_path: Path, open_store: Open) -> None:
    open_store().create("/a")
    left = sorted(tmp_path.iterdir())
    assert [each.name for each in left] == ["cluster.sqlite", "cluster.sqlite-shm", "cluster.sqlite-wal"]
    for each in left:
        each.chmod(0o644)
    assert open_store().get("/a")
    assert {stat.S_IMODE(each.stat().st_mode) for each in left} == {0o600}


@pytest.mark.parametrize(("kept", "error"), [(0, "file is not a database"), (4096, "disk image is malformed")])
def test_a_garbled_file_is_named_with_what_to_do(path: str, kept: int, error: str) -> None:
    store = SqliteStore.open(path)
    for number in range(200):
        store.create(f"/{number}", bytes(100))
    store.close()
    content = Path(path).read_bytes()
    Path(path).write_bytes(content[:kept] + bytes(byte ^ 0x55 for byte in content[kept:]))

    def read_all() -> None:
        with contextlib.closing(SqliteStore.open(path)) as garbled:
            for number in range(200):
                garbled.get(f"/{number}")

    with pytest.raises(StoreError, match=error) as raised:
        read_all()
    assert f"move {path}, {path}-wal and {path}-shm away" in str(raised.value)
