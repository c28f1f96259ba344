"""TLS with a real ZooKeeper: client certificates, and the owners of nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization as pem

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import ConfigError, ConnectionLoss, StoreError
from sparklog.cluster.engines import open_store
from sparklog.cluster.store import Create, Store
from sparklog.testing import start_broker
from support.patience import PATIENCE_MS
from support.processes.zookeeper import ZooKeeperServer

PASSWORD = "keystore-secret"
SOON_MS = 2_000
pytestmark = pytest.mark.jvm


def write(issued: Any, path: Path, password: str = "") -> None:
    """Write the key, in PKCS 8, and the certificates to the file that ZooKeeper reads."""
    key = pem.load_pem_private_key(issued.private_key_pem.bytes(), None)
    hidden = pem.BestAvailableEncryption(password.encode()) if password else pem.NoEncryption()
    chain = b"".join(each.bytes() for each in issued.cert_chain_pems)
    path.write_bytes(key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, hidden) + chain)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PEM files: server, broker (with a password), other, and a stranger of another authority."""
    folder = tmp_path_factory.mktemp("keys")
    authority, elsewhere = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    elsewhere.cert_pem.write_to_path(folder / "elsewhere.pem")
    write(authority.issue_cert("localhost"), folder / "server.pem")
    write(authority.issue_cert("broker", common_name="broker"), folder / "broker.pem", PASSWORD)
    write(authority.issue_cert("other", common_name="other"), folder / "other.pem")
    write(elsewhere.issue_cert("stranger", common_name="stranger"), folder / "stranger.pem")
    return folder


@pytest.fixture(scope="module")
def server(keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    started = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"), keys)
    started.start()
    yield started
    started.stop()


def options(server: ZooKeeperServer, keys: Path, name: str = "broker", **changed: Any) -> dict[str, Any]:
    return {
        "zookeeper_connect": server.secure_address,
        "zookeeper_connection_timeout_ms": PATIENCE_MS,
        "zookeeper_ssl_client_enable": True,
        "zookeeper_ssl_truststore_location": str(keys / "ca.pem"),
        "zookeeper_ssl_keystore_location": str(keys / f"{name}.pem"),
        "zookeeper_ssl_keystore_password": PASSWORD if name == "broker" else "",
    } | changed


@pytest.fixture
def connect(server: ZooKeeperServer, keys: Path) -> Iterator[Any]:
    opened: list[Store] = []

    def connect(name: str = "broker", **changed: Any) -> Store:
        store = open_store(BrokerConfig(**options(server, keys, name, **changed)))
        opened.append(store)
        return store

    yield connect
    for store in opened:
        store.close()


def test_a_broker_keeps_its_cluster_in_zookeeper_over_tls(server: ZooKeeperServer, keys: Path, tmp_path: Path) -> None:
    chosen: Any = options(server, keys, zookeeper_connect=f"{server.secure_address}/cluster", zookeeper_set_acl=True)
    with start_broker(tmp_path, **chosen) as broker:
        broker.node.broker.services.acl_store.make_paths()
        assert broker.node.broker.metadata.brokers
    acl = server.shell("getAcl /cluster/brokers/topics")
    assert "'x509,'" in acl
    assert ": cdrwa" in acl
    assert "'world,'anyone\n: r\n" in acl


def test_nodes_belong_to_those_with_the_same_certificate(connect: Any) -> None:
    owner, other = connect(zookeeper_set_acl=True), connect("other", zookeeper_set_acl=True)
    owner.create("/config")
    owner.multi([Create("/config/users"), Create("/config/users/alice", b"verifier"), Create("/config/topics", b"t")])
    assert other.get("/config/topics").data == b"t"
    with pytest.raises(StoreError):
        other.set("/config/topics", b"x")
    with pytest.raises(StoreError):
        other.delete("/config/topics")
    with pytest.raises(StoreError):
        other.get("/config/users/alice")
    assert connect().get("/config/users/alice").data == b"verifier"


def test_an_untrusted_or_misnamed_server_or_client_is_no_connection(
    server: ZooKeeperServer, keys: Path, connect: Any
) -> None:
    soon = {"zookeeper_connection_timeout_ms": SOON_MS}
    for changed in (
        {"zookeeper_ssl_truststore_location": str(keys / "elsewhere.pem")},
        {"zookeeper_connect": server.secure_address.replace("localhost", "127.0.0.1")},
    ):
        with pytest.raises(ConnectionLoss):
            connect(**soon, **changed)
    with pytest.raises(ConnectionLoss):
        connect("stranger", **soon)
    by_address = {"zookeeper_connect": server.secure_address.replace("localhost", "127.0.0.1")}
    assert connect(zookeeper_ssl_endpoint_identification_algorithm="", **by_address).exists("/")


def test_files_that_cannot_be_used_are_named(connect: Any, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(ConfigError, match=r"zookeeper\.ssl\.keystore\.location = .*missing"):
        connect(zookeeper_ssl_keystore_location=missing)
    with pytest.raises(ConfigError, match=r"no private key that zookeeper\.ssl\.keystore\.password opens"):
        connect(zookeeper_ssl_keystore_password="wrong")
    with pytest.raises(ConfigError, match=r"zookeeper\.ssl\.truststore\.location = .*missing"):
        connect(zookeeper_ssl_truststore_location=missing)
    with pytest.raises(ConfigError, match=r"zookeeper\.set\.acl needs"):
        connect(zookeeper_set_acl=True, zookeeper_ssl_keystore_location="")
