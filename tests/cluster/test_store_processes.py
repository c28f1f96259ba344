"""Several processes on one store: killed, stopped, all at once; and ZooKeeper killed, stopped and started again."""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparklog.base.addresses import Address
from sparklog.base.errors import ConnectionLoss
from sparklog.cluster import brokers, elections
from sparklog.cluster.model import BrokerInfo
from sparklog.cluster.store import SessionState, Store
from sparklog.cluster.zookeeper import ZookeeperStore
from support.patience import PATIENCE_MS, PATIENCE_S
from support.processes.store import StoreProcess, open_named
from support.processes.zookeeper import ZooKeeperServer
from support.store_engines import Told

pytestmark = pytest.mark.slow
LASTING_MS = 60_000
"""Time-out of sessions that must not end, even if the machine stalls."""
ENDING_MS = 4_000
"""Time-out of sessions whose end a test waits for."""
OBSERVING_MS = 12_000
"""Time-out of the session that sees them end: with SQLite, it looks five times within its own time-out."""

Start = Callable[..., StoreProcess]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    made = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    made.start()
    yield made
    made.stop()


@pytest.fixture(params=["sqlite", pytest.param("zookeeper", marks=pytest.mark.jvm)])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the store's address: a file, or ZooKeeper's address with a root of its own."""
    if request.param == "sqlite":
        return str(tmp_path / "cluster.sqlite")
    return request.getfixturevalue("hosts")


@pytest.fixture
def start(where: str) -> Iterator[Start]:
    started: list[StoreProcess] = []

    def start(session_timeout_ms: int = LASTING_MS) -> StoreProcess:
        started.append(StoreProcess(where, session_timeout_ms))
        return started[-1]

    yield start
    for process in started:
        process.kill()


@pytest.fixture
def store(where: str) -> Iterator[Store]:
    opened = open_named(where, OBSERVING_MS)
    yield opened
    opened.close()


def test_a_write_calls_the_watches_of_other_processes(start: Start, store: Store) -> None:
    told = Told()
    process = start()
    store.exists("/a", told)
    assert process.call("create", path="/a") == ["answer", "/a"]
    assert told.next() == "/a"
    assert process.call("watch", path="/a") == ["answer", True]
    store.set("/a", b"1")
    assert process.event() == ["watch", "/a"]


def test_a_killed_process_leaves_no_ephemeral_nodes(start: Start, store: Store) -> None:
    told = Told()
    process = start(ENDING_MS)
    process.call("create", path="/e", ephemeral=True)
    assert store.exists("/e", told)
    process.kill()
    assert told.next() == "/e"
    assert not store.exists("/e")


def test_a_stopped_process_loses_its_session_and_gets_an_error(start: Start, store: Store) -> None:
    told = Told()
    process = start(ENDING_MS)
    process.call("listen")
    process.call("create", path="/e", ephemeral=True)
    process.call("watch", path="/other")
    before = process.call("session_id")
    assert store.exists("/e", told)
    process.signal(signal.SIGSTOP)
    assert told.next() == "/e"
    process.signal(signal.SIGCONT)
    events = [process.event()]
    while ["state", "EXPIRED"] not in events or events[-1] not in (["state", "CONNECTED"], ["watch", "/other"]):
        events.append(process.event())
    if ["watch", "/other"] not in events:
        assert process.event() == ["watch", "/other"]
    while process.call("session_id") == before:
        assert process.event()
    assert process.call("create", path="/e", ephemeral=True) == ["answer", "/e"]


def test_a_short_stop_ends_no_session(start: Start, store: Store) -> None:
    process = start()
    process.call("listen")
    process.call("create", path="/e", ephemeral=True)
    process.signal(signal.SIGSTOP)
    store.create("/a")
    process.signal(signal.SIGCONT)
    assert process.call("get", path="/a") == ["answer", ""]
    assert store.exists("/e")
    assert process.events.empty()


def test_processes_count_together_and_lose_nothing(start: Start, store: Store) -> None:
    store.create("/n", b"0")
    processes = [start() for _ in range(3)]
    for process in processes:
        process.send("add", path="/n", times=50)
    assert [process.answer() for process in processes] == [["answer", None]] * 3
    assert store.get("/n").data == b"150"


def test_processes_that_start_at_once_make_one_store(start: Start) -> None:
    processes = [start() for _ in range(3)]
    for process in processes:
        process.send("create", path="/a")
    assert sorted(process.answer() for process in processes) == [["answer", "/a"], *[["error", "NodeExists"]] * 2]


@pytest.fixture
def mortal(server: ZooKeeperServer) -> Iterator[ZooKeeperServer]:
    """The server, which the test may kill."""
    yield server
    if not server.is_running:
        server.start()


@pytest.fixture
def hosts(server: ZooKeeperServer, tmp_path: Path) -> str:
    """Its address, with a root of the test's own."""
    return f"{server.address}/{tmp_path.name}"


@pytest.mark.jvm
def test_sessions_and_watches_outlive_a_killed_zookeeper(mortal: ZooKeeperServer, hosts: str) -> None:
    stores = [
        ZookeeperStore.open(hosts, session_timeout_ms=LASTING_MS, connection_timeout_ms=PATIENCE_MS) for _ in range(2)
    ]
    states, told = Told(), Told()
    stores[0].listen(states)
    stores[0].create("/e", ephemeral=True)
    session_id = stores[0].session_id
    stores[0].exists("/later", told)
    mortal.kill()
    assert states.next() is SessionState.SUSPENDED
    mortal.start()
    stores[1].create("/later")
    assert states.next() is SessionState.CONNECTED
    assert told.next() == "/later"
    assert stores[0].session_id == session_id
    assert stores[1].get("/e").owner == session_id
    for store in stores:
        store.close()


@pytest.mark.jvm
def test_a_silent_zookeeper_raises_connection_loss_in_time(mortal: ZooKeeperServer, hosts: str) -> None:
    store = ZookeeperStore.open(hosts, session_timeout_ms=ENDING_MS, connection_timeout_ms=PATIENCE_MS)
    states = Told()
    store.listen(states)
    store.create("/a")
    mortal.pause()
    for call in (lambda: store.get("/a"), lambda: store.set("/a", b"1"), lambda: store.create("/b", ephemeral=True)):
        with pytest.raises(ConnectionLoss):
            call()
    assert states.next() is SessionState.SUSPENDED
    mortal.resume()
    while states.next() is not SessionState.CONNECTED:
        continue
    store.set("/a", b"2")
    assert store.get("/a").data == b"2"
    store.close()


@pytest.mark.jvm
def test_a_server_that_takes_a_connection_and_says_nothing_is_left_while_the_session_lives(
    mortal: ZooKeeperServer, hosts: str
) -> None:
    store = ZookeeperStore.open(hosts, session_timeout_ms=24_000, connection_timeout_ms=PATIENCE_MS)
    session_id = store.session_id
    mortal.kill()
    host, port = mortal.address.split(":")
    with socket.create_server((host, int(port))) as silent:
        silent.settimeout(PATIENCE_S)
        connection, _ = silent.accept()
    starting = threading.Thread(target=mortal.start)
    starting.start()
    with connection:
        assert store.exists("/a") is False
    starting.join()
    assert store.session_id == session_id
    store.close()


@pytest.mark.jvm
def test_one_call_waits_for_zookeeper_and_the_others_raise_at_once(mortal: ZooKeeperServer, hosts: str) -> None:
    store = ZookeeperStore.open(hosts, session_timeout_ms=LASTING_MS, connection_timeout_ms=PATIENCE_MS)
    states, outcomes = Told(), Told()
    store.listen(states)
    mortal.kill()
    assert states.next() is SessionState.SUSPENDED

    def call() -> None:
        try:
            outcomes(store.exists("/a"))
        except ConnectionLoss as error:
            outcomes(type(error))

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert [outcomes.next(), outcomes.next()] == [ConnectionLoss] * 2
    assert outcomes.rest() == []
    mortal.start()
    assert outcomes.next() is False
    store.close()


@pytest.mark.jvm
def test_a_store_closes_without_zookeeper(mortal: ZooKeeperServer, hosts: str) -> None:
    store = ZookeeperStore.open(hosts, session_timeout_ms=LASTING_MS, connection_timeout_ms=PATIENCE_MS)
    states = Told()
    store.listen(states)
    mortal.kill()
    assert states.next() is SessionState.SUSPENDED
    store.close()
    assert states.rest() == []


@pytest.mark.jvm
def test_zookeepers_own_shell_shows_what_an_operator_of_kafka_expects(server: ZooKeeperServer) -> None:
    store = ZookeeperStore.open(
        f"{server.address}/shown", session_timeout_ms=LASTING_MS, connection_timeout_ms=PATIENCE_MS
    )
    info = BrokerInfo(
        broker_id=3, grpc_address="here:1", listeners={"PLAINTEXT": Address("here", 9092)}, rack="", version="1"
    )
    brokers.register(store, info, "disk", time_ms=5)
    elections.elect(store, 3, "disk", time_ms=5)
    shown = server.shell("ls /shown/brokers/ids", "get /shown/controller", "get /shown/brokers/ids/3")
    assert "[3]" in shown
    controller, broker = (json.loads(line) for line in shown.splitlines() if line.startswith("{"))
    assert controller["brokerid"] == 3
    assert broker["endpoints"] == ["PLAINTEXT://here:9092", "GRPC://here:1"]
    store.close()
