"""Apache Kafka's own tools on a broker with an authorizer: kafka-acls.sh, and clients with rights and without."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.base.config import STANDARD_AUTHORIZER
from sparklog.testing import RunningBroker, start_broker
from support.patience import PATIENCE_MS, wait_until
from support.processes.java import KafkaTools

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
ACLS, TOPICS = "org.apache.kafka.tools.AclCommand", "org.apache.kafka.tools.TopicCommand"
PRODUCER, CONSUMER = "org.apache.kafka.tools.ConsoleProducer", "org.apache.kafka.tools.consumer.ConsoleConsumer"
USERS = ("admin", "alice", "bob")
pytestmark = pytest.mark.jvm


class Tools:
    """Kafka's tools, run as one user or another."""

    def __init__(self, tools: KafkaTools, broker: RunningBroker, folder: Path) -> None:
        self._tools = tools
        self._address = broker.node.kafka_addresses["SASL_PLAINTEXT"]
        self._folder = folder

    def run(self, name: str, *arguments: str, user: str = "admin", given: str = "") -> subprocess.CompletedProcess[str]:
        settings = self._folder / "client.properties"
        settings.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={MODULE} required username="{user}" password="{user}";\n'
        )
        return self._tools.run(
            name, "--bootstrap-server", str(self._address), "--command-config", str(settings), *arguments, given=given
        )

    def ok(self, name: str, *arguments: str, user: str = "admin", given: str = "") -> str:
        result = self.run(name, *arguments, user=user, given=given)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def consume(self, user: str, group: str) -> subprocess.CompletedProcess[str]:
        read = ("--from-beginning", "--max-messages", "1", "--timeout-ms", str(PATIENCE_MS), "--group", group)
        return self.run(CONSUMER, "--topic", "orders", *read, user=user)


@pytest.fixture
def tools(tmp_path: Path, kafka_tools: KafkaTools) -> Iterator[Tools]:
    users = " ".join(f'user_{name}="{name}"' for name in USERS)
    with start_broker(
        listeners=("SASL_PLAINTEXT://127.0.0.1:0",),
        plain_sasl_jaas_config=f"{MODULE} required {users};",
        authorizer_class_name=STANDARD_AUTHORIZER,
        super_users="User:admin",
        group_initial_rebalance_delay_ms=0,
    ) as broker:
        yield Tools(kafka_tools, broker, tmp_path)


def test_kafkas_tool_adds_lists_and_removes_acls(tools: Tools) -> None:
    tools.ok(ACLS, "--add", "--allow-principal", "User:alice", "--producer", "--topic", "orders")
    tools.ok(
        ACLS, "--add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--operation", "Read", "--topic",
        "secret-", "--resource-pattern-type", "prefixed",
    )  # fmt: skip

    listed = tools.ok(ACLS, "--list")
    assert "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)" in listed
    assert "(principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW)" in listed
    matching = tools.ok(ACLS, "--list", "--topic", "secret-plans", "--resource-pattern-type", "match")
    assert "(principal=User:bob, host=10.0.0.1, operation=READ, permissionType=DENY)" in matching
    assert "orders" not in matching

    tools.ok(ACLS, "--remove", "--topic", "orders", "--force")
    assert "orders" not in tools.ok(ACLS, "--list")
    refused = tools.run(ACLS, "--list", user="alice")
    assert "ClusterAuthorizationException" in refused.stdout + refused.stderr


def test_javas_clients_do_what_they_have_a_right_to_and_nothing_else(tools: Tools) -> None:
    tools.ok(TOPICS, "--create", "--topic", "orders", "--partitions", "1")
    tools.ok(ACLS, "--add", "--allow-principal", "User:alice", "--producer", "--topic", "orders")
    tools.ok(ACLS, "--add", "--allow-principal", "User:bob", "--consumer", "--topic", "orders", "--group", "readers")
    wait_until(lambda: "orders" in tools.ok(TOPICS, "--list", user="bob"), "the broker applies the ACLs")

    assert tools.run(PRODUCER, "--topic", "orders", user="alice", given="hello\n").returncode == 0
    assert tools.consume("bob", "readers").stdout == "hello\n"

    written = tools.run(PRODUCER, "--topic", "orders", user="bob", given="bad\n")
    assert "AuthorizationException" in written.stdout + written.stderr
    read = tools.consume("alice", "readers")
    assert "GroupAuthorizationException" in read.stdout + read.stderr
    other_group = tools.consume("bob", "others")
    assert "GroupAuthorizationException" in other_group.stdout + other_group.stderr
    assert tools.ok(TOPICS, "--list", user="bob").split() == ["orders"]
