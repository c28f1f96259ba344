"""Apache Kafka's own tools on a listener with TLS, passwords and tokens."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trustme

from sparklog.base.jaas import OAUTHBEARER_MODULE
from sparklog.client.config import LOGIN_HANDLER
from sparklog.testing import RunningBroker, start_broker
from support.issuer import AUDIENCE, ISSUER, Issuer
from support.patience import PATIENCE_MS
from support.processes.java import KafkaTools

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
pytestmark = pytest.mark.jvm


class Tools:
    """Kafka's tools, run as one user or another."""

    def __init__(self, tools: KafkaTools, broker: RunningBroker, folder: Path) -> None:
        self._tools = tools
        self._address = broker.node.kafka_addresses["SASL_SSL"]
        self._folder = folder

    def run(
        self, name: str, *arguments: str, mechanism: str, user: str, password: str, given: str = ""
    ) -> subprocess.CompletedProcess[str]:
        settings = self._folder / "client.properties"
        module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
        settings.write_text(
            f"security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\n"
            f'sasl.jaas.config={module} required username="{user}" password="{password}";\n'
            f"ssl.truststore.type=PEM\nssl.truststore.location={self._folder / 'ca.pem'}\n"
        )
        connect = ("--bootstrap-server", str(self._address), "--command-config", str(settings))
        return self._tools.run(name, *connect, *arguments, given=given)


@pytest.fixture
def tools(tmp_path: Path, kafka_tools: KafkaTools) -> Iterator[Tools]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    with start_broker(
        listeners=("SASL_SSL://127.0.0.1:0",),
        ssl_keystore_location=str(tmp_path / "server.pem"),
        plain_sasl_jaas_config=f'{PLAIN_MODULE} required user_admin="admin-secret";',
        group_initial_rebalance_delay_ms=0,
    ) as broker:
        yield Tools(kafka_tools, broker, tmp_path)


def test_a_user_is_added_writes_reads_and_is_refused_with_another_password(tools: Tools) -> None:
    admin = {"mechanism": "PLAIN", "user": "admin", "password": "admin-secret"}
    configs, users = "kafka.admin.ConfigCommand", ("--entity-type", "users")
    credentials = "SCRAM-SHA-256=[password=pw],SCRAM-SHA-512=[iterations=8192,password=pw]"
    added = tools.run(configs, "--alter", "--add-config", credentials, *users, "--entity-name", "bob", **admin)
    assert added.returncode == 0, added.stderr
    assert tools.run(configs, "--describe", *users, **admin).stdout == (
        "SCRAM credential configs for user-principal 'bob' are "
        "SCRAM-SHA-256=iterations=4096, SCRAM-SHA-512=iterations=8192\n"
    )

    produce, topic = "org.apache.kafka.tools.ConsoleProducer", ("--topic", "secret")
    bob = {"mechanism": "SCRAM-SHA-512", "user": "bob", "password": "pw"}
    assert tools.run(produce, *topic, **bob, given="hello\n").returncode == 0
    consume = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    read = ("--from-beginning", "--max-messages", "1", "--timeout-ms", str(PATIENCE_MS))
    assert tools.run(consume, *topic, *read, **bob | {"mechanism": "SCRAM-SHA-256"}).stdout == "hello\n"

    refused = tools.run(produce, *topic, **bob | {"password": "wrong"}, given="bad\n")
    assert "SaslAuthenticationException" in refused.stdout + refused.stderr


def test_kafkas_tools_show_a_token_from_a_file(tmp_path: Path) -> None:
    issuer, token, settings = Issuer(), tmp_path / "token", tmp_path / "client.properties"
    settings.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.endpoint.url=file://{token}\nsasl.jaas.config={OAUTHBEARER_MODULE} required;\n"
        f"sasl.login.callback.handler.class={LOGIN_HANDLER}\n"
    )
    with (
        start_broker(
            listeners=("SASL_PLAINTEXT://127.0.0.1:0",),
            sasl_enabled_mechanisms="OAUTHBEARER",
            sasl_oauthbearer_jwks_endpoint_url=issuer.publish(tmp_path / "keys.json"),
            sasl_oauthbearer_expected_issuer=ISSUER,
            sasl_oauthbearer_expected_audience=AUDIENCE,
        ) as broker,
        closing(KafkaTools(f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{token}")) as tools,
    ):
        connect = ("--bootstrap-server", broker.kafka, "--command-config", str(settings), "--topic", "tokens")
        token.write_text(issuer.token())
        written = tools.run("org.apache.kafka.tools.ConsoleProducer", *connect, given="hello\n")
        assert written.returncode == 0, written.stderr
        read = ("--from-beginning", "--max-messages", "1", "--timeout-ms", str(PATIENCE_MS))
        consumed = tools.run("org.apache.kafka.tools.consumer.ConsoleConsumer", *connect, *read)
        assert consumed.stdout == "hello\n", consumed.stderr

        token.write_text(Issuer().token())
        refused = tools.run("org.apache.kafka.tools.ConsoleProducer", *connect, given="bad\n")
        assert "SaslAuthenticationException" in refused.stdout + refused.stderr
        assert '{"status":"invalid_token"}' in refused.stdout + refused.stderr
