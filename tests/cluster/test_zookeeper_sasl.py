"""Passwords towards a real ZooKeeper (SASL DIGEST-MD5): the owners of nodes, and refused logins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import ConfigError, ConnectionLoss, StoreError
from sparklog.base.jaas import DIGEST_MODULE
from sparklog.cluster import engines
from sparklog.cluster.engines import open_store
from sparklog.cluster.store import ANY_VERSION, Store
from sparklog.testing import start_broker
from support.patience import PATIENCE_MS, wait_until
from support.processes.zookeeper import ZooKeeperServer

USERS = {"broker": "broker-secret", "other": "other-secret"}
SESSION_MS = 2_000
pytestmark = [
    pytest.mark.jvm,
    # kazoo's thread ends with an exception where the server answers with an error.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]


@pytest.fixture(params=[False, True], ids=["closes the connection", "answers with an error"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """The refusal of a login depends on whether the server serves clients without one."""
    started = ZooKeeperServer(tmp_path / "zookeeper", users=USERS, needs_login=request.param)
    started.start()
    yield started
    started.stop()


def options(server: ZooKeeperServer, user: str = "broker", password: str = "") -> dict[str, Any]:
    login = f'{DIGEST_MODULE} required username="{user}" password="{password or USERS[user]}";'
    return {
        "zookeeper_connect": server.address,
        "zookeeper_connection_timeout_ms": PATIENCE_MS,
        "zookeeper_session_timeout_ms": SESSION_MS,
        "zookeeper_sasl_jaas_config": login,
        "zookeeper_set_acl": True,
    }


@pytest.fixture
def connect(server: ZooKeeperServer) -> Iterator[Any]:
    opened: list[Store] = []

    def connect(*user: str) -> Store:
        store = open_store(BrokerConfig(**options(server, *user)))
        opened.append(store)
        return store

    yield connect
    for store in opened:
        store.close()


def changes(store: Store, path: str) -> bool:
    try:
        store.set(path, b"changed", ANY_VERSION)
    except StoreError:
        return False
    return True


def test_a_broker_logs_in_and_owns_its_nodes(server: ZooKeeperServer, connect: Any, tmp_path: Path) -> None:
    with start_broker(tmp_path / "broker", **options(server)) as broker:
        assert broker.node.broker.metadata.brokers
    other = connect("other")
    assert not changes(other, "/brokers/topics")
    assert changes(connect(), "/brokers/topics")


def test_a_wrong_password_raises_at_once(server: ZooKeeperServer, connect: Any) -> None:
    with pytest.raises(ConnectionLoss, match="refused the login") as refused:
        connect("broker", "not-the-password")
    assert "not-the-password" not in str(refused.value)


def test_a_store_goes_on_when_its_login_was_refused_for_a_while(
    server: ZooKeeperServer, connect: Any, caplog: pytest.LogCaptureFixture
) -> None:
    store = connect()
    store.create("/kept", b"as it was")
    server.stop()
    server.set_users(USERS | {"broker": "another"})
    server.start()
    wait_until(lambda: caplog.text.count("has refused the login") > 1, "the store has tried to log in again")
    assert is_lost(store)
    server.stop()
    server.set_users(USERS)
    server.start()
    wait_until(lambda: changes(store, "/kept"), "the store has logged in again")


def is_lost(store: Store) -> bool:
    try:
        store.get("/kept")
    except ConnectionLoss:
        return True
    return False


@pytest.mark.parametrize(
    ("login", "said"),
    [
        ('org.apache.kafka.Other required username="a" password="b";', "it must be org.apache.zookeeper"),
        (f'{DIGEST_MODULE} required username="a";', "needs username and password"),
    ],
)
def test_a_login_that_cannot_be_is_named_by_its_key(login: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"zookeeper.sasl.jaas.config: .*{said}"):
        open_store(BrokerConfig(zookeeper_connect="127.0.0.1:1", zookeeper_sasl_jaas_config=login))


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'sparklog\[zookeeper-sasl\]'"):
        open_store(BrokerConfig(zookeeper_connect="127.0.0.1:1", zookeeper_sasl_jaas_config="x"))
