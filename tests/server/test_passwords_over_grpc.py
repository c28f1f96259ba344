"""A gRPC listener with passwords: sparklog's clients, the command line, brokers, and clients without a password."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner

from sparklog.base.acls import AclBinding, AclOperation, AclPermission, AclResourceType, PatternType
from sparklog.base.config import STANDARD_AUTHORIZER
from sparklog.base.errors import ConfigError, SaslAuthenticationFailed, TopicAuthorizationFailed
from sparklog.base.ids import TopicPartition
from sparklog.base.jaas import PLAIN_MODULE, SCRAM_MODULE
from sparklog.cli import topics
from sparklog.client import Admin, Consumer, Producer
from sparklog.cluster.users import ScramCredential, ScramMechanism
from sparklog.testing import RunningBroker, start_broker, start_cluster
from sparklog.v1 import admin_pb2, admin_pb2_grpc
from support.patience import PATIENCE_S, wait_until

BROKER_LOGIN = f'{PLAIN_MODULE} required username="broker" password="b" user_broker="b" user_admin="a b:c";'
NO_TLS = {"security_protocol": "SASL_PLAINTEXT"}


def login(user: str, password: str, module: str = PLAIN_MODULE) -> dict[str, str]:
    return {**NO_TLS, "sasl_jaas_config": f'{module} required username="{user}" password="{password}";'}


ADMIN, ALICE = login("admin", "a b:c"), login("alice", "secret", SCRAM_MODULE)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with start_broker(
        grpc_security_protocol="SASL_PLAINTEXT",
        plain_sasl_jaas_config=BROKER_LOGIN,
        authorizer_class_name=STANDARD_AUTHORIZER,
        super_users="User:admin;User:broker",
        connection_failed_authentication_delay_ms=1,
        group_initial_rebalance_delay_ms=0,
    ) as broker:
        put_user(broker, "alice", "secret")
        with Admin(bootstrap_servers=broker.bootstrap, **ADMIN) as admin:
            admin.create_topic("orders")
            admin.create_acls([acl("orders", AclOperation.WRITE), acl("orders", AclOperation.READ)])
        yield broker


def put_user(broker: RunningBroker, name: str, password: str) -> None:
    mechanism = ScramMechanism.SHA_256
    credential = ScramCredential.of_password(mechanism, password, b"salt", 4096)
    broker.node.broker.services.users.put(name, mechanism, credential)


def acl(topic: str, operation: AclOperation) -> AclBinding:
    return AclBinding(
        AclResourceType.TOPIC, topic, PatternType.LITERAL, "User:alice", "127.0.0.1", operation, AclPermission.ALLOW
    )


def test_a_user_writes_and_reads_what_acls_allow(broker: RunningBroker) -> None:
    connect: dict[str, Any] = {"bootstrap_servers": broker.bootstrap, **ALICE}

    def is_written() -> bool:
        with Producer(**connect, enable_idempotence=False) as producer:
            try:
                producer.send("orders", b"hello").result(PATIENCE_S)
            except TopicAuthorizationFailed:  # the ACLs have not come yet
                return False
        return True

    wait_until(is_written, "the broker applies the ACLs")
    with Consumer(**connect, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        [record] = consumer.poll(timeout_ms=int(PATIENCE_S * 1000))[:1]
    assert record.value == b"hello"
    with Admin(**connect) as admin, pytest.raises(TopicAuthorizationFailed):
        admin.create_topic("others")


@pytest.mark.parametrize(
    "options",
    [
        {},
        login("alice", "wrong"),
        login("nobody", "secret"),
        login("admin", "a"),
        login("admin", "a b:c") | {"security_protocol": "PLAINTEXT"},
    ],
    ids=["no password", "a wrong one", "an unknown user", "half of it", "not shown"],
)
def test_whoever_does_not_show_a_right_password_is_not_served(broker: RunningBroker, options: dict[str, str]) -> None:
    with (
        Admin(bootstrap_servers=broker.bootstrap, default_api_timeout_ms=5_000, **options) as admin,
        pytest.raises(SaslAuthenticationFailed),
    ):
        admin.list_topics()


NO_COLON = base64.b64encode(b"admin").decode()


@pytest.mark.parametrize("value", ["", "Bearer abc", "Basic", "Basic ?", f"Basic {NO_COLON}"])
def test_bytes_that_are_no_password_are_refused_with_the_status_for_that(broker: RunningBroker, value: str) -> None:
    with grpc.insecure_channel(broker.bootstrap) as channel, pytest.raises(grpc.RpcError) as refused:
        admin_pb2_grpc.AdminStub(channel).ListTopics(
            admin_pb2.ListTopicsRequest(), timeout=PATIENCE_S, metadata=[("authorization", value)] if value else []
        )
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "admin" not in refused.value.details().replace("sparklog", "")


def test_every_service_wants_the_password(broker: RunningBroker) -> None:
    with grpc.insecure_channel(broker.bootstrap) as channel:
        for path in ("Log/Produce", "Groups/ListGroups", "Maintenance/DescribeLog", "Transactions/ListTransactions",
                     "Sinks/ListSinks", "Replication/DescribeFiles"):  # fmt: skip
            with pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary(f"/sparklog.v1.{path}")(b"", timeout=PATIENCE_S)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED, path
        for path in ("Log/ProduceStream", "Maintenance/UploadSegment", "Maintenance/InstallSnapshot"):
            with pytest.raises(grpc.RpcError) as refused:
                next(channel.stream_stream(f"/sparklog.v1.{path}")(iter([b""]), timeout=PATIENCE_S))
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED, path
        with pytest.raises(grpc.RpcError) as refused:
            next(channel.unary_stream("/sparklog.v1.Log/Subscribe")(b"", timeout=PATIENCE_S))
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_the_command_line_logs_in_by_a_file_of_kafkas(broker: RunningBroker, tmp_path: Path) -> None:

    settings = tmp_path / "client.properties"
    settings.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={PLAIN_MODULE} required username="admin" password="a b:c";\n'
    )
    arguments = ["list", "--bootstrap", broker.bootstrap, "--client-config", str(settings)]
    assert "orders" in CliRunner().invoke(topics.command, arguments, catch_exceptions=False).output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (NO_TLS, "sasl_jaas_config"),
        ({**NO_TLS, "sasl_jaas_config": "com.example.Login required;"}, "sasl_jaas_config"),
        ({**NO_TLS, "sasl_jaas_config": f'{PLAIN_MODULE} required password="hunter2";'}, "no username"),
    ],
)
def test_a_client_says_at_once_what_is_missing(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        Admin(bootstrap_servers="127.0.0.1:1", **options)
    assert "hunter2" not in str(refused.value)


@pytest.mark.slow
def test_brokers_show_each_other_the_password_of_their_configuration() -> None:
    with (
        start_cluster(
            2,
            grpc_security_protocol="SASL_PLAINTEXT",
            plain_sasl_jaas_config=BROKER_LOGIN,
            authorizer_class_name=STANDARD_AUTHORIZER,
            super_users="User:admin;User:broker",
        ) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap, **ADMIN) as admin,
    ):
        admin.create_topic("orders", replication_factor=2)

        def in_sync() -> set[int]:
            [topic] = admin.describe_topics(["orders"])
            return set(topic.partitions[0].in_sync_replicas)

        wait_until(lambda: len(in_sync()) == 2, "the follower copies the leader")
        with Producer(bootstrap_servers=cluster.bootstrap, **ADMIN) as producer:
            producer.send("orders", b"hello").result(PATIENCE_S)
