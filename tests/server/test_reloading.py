"""Certificates, users and keys of tokens that change while a broker runs, on both listeners."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from sparklog.base.jaas import PLAIN_MODULE
from sparklog.client import Admin
from sparklog.server import reloading
from sparklog.testing import RunningBroker, start_broker, start_cluster
from sparklog.v1 import admin_pb2, admin_pb2_grpc
from support.issuer import AUDIENCE, Issuer
from support.kafka.connection import Wire
from support.patience import PATIENCE_S, wait_until
from support.processes.broker import BrokerProcess

pytestmark = pytest.mark.slow

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloading, "CHECK_MS", 20)


class Keys:
    """The files of a broker and of its clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.old, self.new = trustme.CA(), trustme.CA()
        self.server, self.trusted = folder / "server.pem", folder / "trusted.pem"
        self.replace_server(self.old)
        self.replace_trusted(self.old)
        for name, authority in (("old", self.old), ("new", self.new)):
            authority.cert_pem.write_to_path(folder / f"{name}-ca.pem")
            pem = authority.issue_cert("client").private_key_and_cert_chain_pem
            pem.write_to_path(folder / f"{name}-client.pem")

    def replace_server(self, authority: trustme.CA) -> None:
        certificate = authority.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem
        self._replace(self.server, certificate.bytes())

    def replace_trusted(self, *authorities: trustme.CA) -> None:
        self._replace(self.trusted, b"".join(each.cert_pem.bytes() for each in authorities))

    def _replace(self, file: Path, content: bytes) -> None:
        new = file.with_suffix(".new")
        new.write_bytes(content)
        new.replace(file)


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


@pytest.fixture
def broker(keys: Keys) -> Iterator[RunningBroker]:
    with start_broker(
        listeners=("SSL://127.0.0.1:0",),
        grpc_security_protocol="SSL",
        ssl_keystore_location=str(keys.server),
        ssl_truststore_location=str(keys.trusted),
        ssl_client_auth="required",
    ) as broker:
        yield broker


def is_served_by_kafka(broker: RunningBroker, keys: Keys, authority: str, client: str) -> bool:
    context = ssl.create_default_context(cafile=str(keys.folder / f"{authority}-ca.pem"))
    context.load_cert_chain(keys.folder / f"{client}-client.pem")
    try:
        with Wire(broker.node.kafka_addresses["SSL"]) as wire:
            wire.socket = context.wrap_socket(wire.socket, server_hostname="localhost")
            return bool(wire.send(API_VERSIONS, 0).api_keys)
    except (ssl.SSLError, ConnectionError):
        return False


def is_served_by_grpc(broker: RunningBroker | str, keys: Keys, authority: str, client: str) -> bool:
    address = broker if isinstance(broker, str) else broker.bootstrap
    own = (keys.folder / f"{client}-client.pem").read_bytes()
    trusted = (keys.folder / f"{authority}-ca.pem").read_bytes()
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.secure_channel(address, grpc.ssl_channel_credentials(trusted, own, own), options) as channel:
        try:
            admin_pb2_grpc.AdminStub(channel).ListTopics(admin_pb2.ListTopicsRequest(), timeout=PATIENCE_S)
        except grpc.RpcError as error:
            return not is_refused(error, grpc.StatusCode.UNAVAILABLE)
        return True


def is_refused(error: grpc.RpcError, status: grpc.StatusCode) -> bool:
    """Fail if the error has another status."""
    assert error.code() is status, error
    return True


LISTENERS = pytest.mark.parametrize("is_served", [is_served_by_kafka, is_served_by_grpc], ids=["kafka", "grpc"])


@LISTENERS
def test_new_connections_get_the_new_certificate(broker: RunningBroker, keys: Keys, is_served) -> None:
    assert is_served(broker, keys, "old", "old")
    keys.replace_server(keys.new)

    wait_until(lambda: is_served(broker, keys, "new", "old"), "the new certificate is shown")
    assert not is_served(broker, keys, "old", "old")


@LISTENERS
def test_clients_of_another_authority_are_let_in(broker: RunningBroker, keys: Keys, is_served) -> None:
    assert not is_served(broker, keys, "old", "new")
    keys.replace_trusted(keys.old, keys.new)
    wait_until(lambda: is_served(broker, keys, "old", "new"), "the new authority may vouch")
    assert is_served(broker, keys, "old", "old")

    keys.replace_trusted(keys.new)
    wait_until(lambda: not is_served(broker, keys, "old", "old"), "the old authority may not vouch")
    assert is_served(broker, keys, "old", "new")


def test_an_open_connection_stays(broker: RunningBroker, keys: Keys) -> None:
    context = ssl.create_default_context(cafile=str(keys.folder / "old-ca.pem"))
    context.load_cert_chain(keys.folder / "old-client.pem")
    with Wire(broker.node.kafka_addresses["SSL"]) as wire:
        wire.socket = context.wrap_socket(wire.socket, server_hostname="localhost")
        keys.replace_server(keys.new)
        wait_until(lambda: is_served_by_kafka(broker, keys, "new", "old"), "the new certificate is shown")

        assert wire.send(API_VERSIONS, 0).api_keys


@LISTENERS
def test_a_file_of_no_use_changes_nothing_and_is_named(
    broker: RunningBroker, keys: Keys, caplog: pytest.LogCaptureFixture, is_served: Any
) -> None:  # fmt: skip
    keys.server.write_text("-----BEGIN PRIVATE KEY-----\nhalf of")
    wait_until(lambda: f"ssl.keystore.location = '{keys.server}'" in caplog.text, "the log names the file")
    assert "certificates stay as they were" in caplog.text
    assert is_served(broker, keys, "old", "old")

    keys.server.unlink()
    wait_until(lambda: "No such file" in caplog.text, "the log says that the file is missing")
    assert is_served(broker, keys, "old", "old")

    keys.replace_server(keys.new)
    wait_until(lambda: is_served(broker, keys, "new", "old"), "the new certificate is shown")


@pytest.mark.slow
def test_brokers_of_a_cluster_go_on_with_other_certificates(keys: Keys) -> None:
    keys.replace_trusted(keys.old, keys.new)
    with start_cluster(
        2,
        grpc_security_protocol="SSL",
        ssl_keystore_location=str(keys.server),
        ssl_truststore_location=str(keys.trusted),
        ssl_client_auth="required",
    ) as cluster:
        options = {
            "bootstrap_servers": cluster.bootstrap, "security_protocol": "SSL",
            "ssl_truststore_location": str(keys.trusted),
            "ssl_keystore_location": str(keys.folder / "new-client.pem"),
        }  # fmt: skip
        with Admin(**options) as admin:
            admin.create_topic("before", replication_factor=2)
        keys.replace_server(keys.new)
        keys.replace_trusted(keys.new)
        for address in cluster.bootstrap.split(","):
            wait_until(lambda at=address: not is_served_by_grpc(at, keys, "new", "old"), "it refuses the old ones")
        cluster.stop_broker(2)  # the connection that the other broker has had ends
        cluster.start_broker(2)

        with Admin(**options) as admin:

            def in_sync() -> int:
                [found] = admin.describe_topics(["before"])
                return len(found.partitions[0].in_sync_replicas)

            wait_until(lambda: in_sync() == 2, "each follower copies its leader")


def test_keys_of_tokens_are_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    issuer, file = Issuer(), tmp_path / "keys.json"
    with (
        start_broker(
            grpc_security_protocol="SASL_PLAINTEXT",
            sasl_enabled_mechanisms="OAUTHBEARER",
            sasl_oauthbearer_jwks_endpoint_url=issuer.publish(file),
            sasl_oauthbearer_expected_audience=AUDIENCE,
            connection_failed_authentication_delay_ms=1,
        ) as broker,
        grpc.insecure_channel(broker.bootstrap) as channel,
    ):

        def is_let_in() -> bool:
            metadata = [("authorization", f"Bearer {issuer.token()}")]
            try:
                stub = admin_pb2_grpc.AdminStub(channel)
                stub.ListTopics(admin_pb2.ListTopicsRequest(), timeout=PATIENCE_S, metadata=metadata)
            except grpc.RpcError:
                return False
            return True

        assert is_let_in()
        file.write_text("{}")
        wait_until(lambda: "keys of tokens stay as they were" in caplog.text, "the log says so")
        assert str(file) in caplog.text
        assert is_let_in()

        issuer.rotate()
        assert not is_let_in()
        issuer.publish(file)
        wait_until(is_let_in, "the new keys are there")


class Users:
    """A broker process whose users of PLAIN are in a file."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "broker.toml"

    def write(self, users: str, more: str = "") -> None:
        new = self.file.with_suffix(".new")
        new.write_text(f"\"plain.sasl.jaas.config\" = '''{PLAIN_MODULE} required {users};'''\n{more}")
        new.replace(self.file)


def is_let_in_by_kafka(process: BrokerProcess, user: str, password: str) -> bool:
    host, _, port = process.kafka.rpartition(":")
    with Wire((host, int(port))) as wire:
        wire.send(SASL_HANDSHAKE, 1, mechanism="PLAIN")
        return wire.send(SASL_AUTHENTICATE, 2, auth_bytes=f"\0{user}\0{password}".encode()).error_code == 0


def is_let_in_by_grpc(process: BrokerProcess, user: str, password: str) -> bool:
    basic = base64.b64encode(f"{user}:{password}".encode()).decode()
    with grpc.insecure_channel(process.grpc, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        try:
            admin_pb2_grpc.AdminStub(channel).ListTopics(
                admin_pb2.ListTopicsRequest(), timeout=PATIENCE_S, metadata=[("authorization", f"Basic {basic}")]
            )
        except grpc.RpcError as error:
            return not is_refused(error, grpc.StatusCode.UNAUTHENTICATED)
        return True


@pytest.mark.slow
@pytest.mark.parametrize("is_let_in", [is_let_in_by_kafka, is_let_in_by_grpc], ids=["kafka", "grpc"])
def test_users_of_plain_in_the_file_of_the_configuration_apply(tmp_path: Path, is_let_in) -> None:
    users = Users(tmp_path)
    users.write('user_alice="first"')
    process = BrokerProcess(
        tmp_path, "grpc.security.protocol=SASL_PLAINTEXT", "sasl.enabled.mechanisms=PLAIN",
        "connection.failed.authentication.delay.ms=1", "listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT",
        config=users.file,
    )  # fmt: skip
    with process:
        assert is_let_in(process, "alice", "first")
        users.write('user_bob="hunter2" user_alice="second"', more="num.partitions = 7\n")
        wait_until(lambda: is_let_in(process, "bob", "hunter2"), "bob is let in")
        assert is_let_in(process, "alice", "second")

        for text, what in (('user_bob="hunter3', "it must be org.apache"), ("", "needs plain.sasl.jaas.config")):
            users.file.write_text(f"\"plain.sasl.jaas.config\" = '''{text}'''\n")
            wait_until(lambda what=what: what in process.log, "the log says that the file is of no use")
            assert is_let_in(process, "bob", "hunter2")
        users.file.write_text("a = ''''hunter4")
        wait_until(lambda: f"no use: {users.file}: Expected" in process.log, "it says that the file is no TOML")
        assert is_let_in(process, "bob", "hunter2")
        users.write('user_carol="x"')
        wait_until(lambda: is_let_in(process, "carol", "x"), "carol is let in")
        assert not is_let_in(process, "bob", "wrong")

    assert f"{users.file} has changed; this needs a restart to apply: num.partitions" in process.log
    assert "hunter" not in process.log
