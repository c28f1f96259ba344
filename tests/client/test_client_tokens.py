"""Tokens of clients: from a file, a function and an issuer, and the errors without a token."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparklog.base.errors import ConfigError, KafkaError, NetworkException, SaslAuthenticationFailed
from sparklog.base.ids import TopicPartition
from sparklog.cli import run
from sparklog.client import Admin, Consumer, Producer
from sparklog.client.config import LOGIN_HANDLER
from sparklog.testing import RunningBroker, start_broker
from support.issuer import AUDIENCE, Answers, Issuer, http_server
from support.patience import PATIENCE_MS, PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SECRET = "hunter2 :%"
GRANT = f'{MODULE} required clientId="billing" clientSecret="{SECRET}" scope="read write";'


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def broker(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with start_broker(
        grpc_security_protocol="SASL_PLAINTEXT",
        sasl_enabled_mechanisms="OAUTHBEARER",
        sasl_oauthbearer_jwks_endpoint_url=issuer.publish(tmp_path_factory.mktemp("keys") / "keys.json"),
        sasl_oauthbearer_expected_audience=AUDIENCE,
        connection_failed_authentication_delay_ms=1,
        group_initial_rebalance_delay_ms=0,
    ) as broker:
        yield broker


@pytest.fixture
def server() -> Iterator[Answers]:
    with http_server() as answers:
        yield answers


def options(broker: RunningBroker, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        **more,
    }


def is_let_in(admin: Admin) -> bool:
    try:
        admin.list_topics()
    except SaslAuthenticationFailed:
        return False
    return True


def test_a_token_from_a_file_writes_and_reads(broker: RunningBroker, issuer: Issuer, tmp_path: Path) -> None:
    file = tmp_path / "a token"
    file.write_text(issuer.token() + "\n")
    connect = options(broker, sasl_oauthbearer_token_endpoint_url=file.as_uri(), sasl_jaas_config=f"{MODULE} required;")
    with Producer(**connect) as producer:
        producer.send("orders", b"hello").result(PATIENCE_S)
    with Consumer(**connect, auto_offset_reset="earliest", group_id="g") as consumer:
        consumer.subscribe(["orders"])
        wait_until(lambda: [each.value for each in consumer.poll(timeout_ms=1_000)] == [b"hello"], "it is read")


def test_a_file_is_read_again_when_it_has_changed(broker: RunningBroker, issuer: Issuer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(issuer.token(valid_s=-1))
    with Admin(**options(broker, sasl_oauthbearer_token_endpoint_url=file.as_uri())) as admin:
        assert not is_let_in(admin)
        file.write_text(issuer.token())
        assert is_let_in(admin)  # a refused token is not used again

        file.write_text(Issuer().token())
        wait_until(lambda: not is_let_in(admin), "the new token is sent")


def test_a_file_that_is_gone_for_a_while_leaves_the_token(
    broker: RunningBroker, issuer: Issuer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "token"
    file.write_text(issuer.token())
    with Admin(**options(broker, sasl_oauthbearer_token_endpoint_url=file.as_uri())) as admin:
        assert is_let_in(admin)
        file.unlink()
        wait_until(lambda: is_let_in(admin) and "No such file" in caplog.text, "the client has noticed")
        assert is_let_in(admin)


def test_a_function_is_asked_again_before_the_token_expires(broker: RunningBroker, issuer: Issuer) -> None:
    given: list[float] = []

    def provide() -> str:
        given.append(time.monotonic())
        return issuer.token(valid_s=5)

    with Admin(**options(broker, token_provider=provide)) as admin:
        for _ in range(20):
            assert is_let_in(admin)
        assert len(given) == 1

        def has_asked_again() -> bool:
            assert is_let_in(admin)
            return len(given) > 1

        wait_until(has_asked_again, "it is asked again")


@pytest.mark.parametrize("valid_s", [3600, None])
def test_an_issuer_grants_a_token_for_the_secret_of_the_client(
    broker: RunningBroker, issuer: Issuer, server: Answers, valid_s: int | None
) -> None:
    server.body = json.dumps({"access_token": issuer.token(), "expires_in": valid_s}).encode()
    connect = options(broker, sasl_oauthbearer_token_endpoint_url=server.url + "/token", sasl_jaas_config=GRANT)
    with Admin(**connect) as admin:
        assert is_let_in(admin)
        assert is_let_in(admin)

    [(path, headers, body)] = server.requests
    assert (path, body) == ("/token", b"grant_type=client_credentials&scope=read+write")
    assert base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode() == f"billing:{SECRET}"


@pytest.mark.parametrize(
    ("status", "body", "error", "text"),
    [
        (401, b"{}", SaslAuthenticationFailed, "refuses with HTTP status 401"),
        (503, b"{}", NetworkException, "answers with HTTP status 503"),
        (200, b"<html>", SaslAuthenticationFailed, "has no access_token in its answer"),
        (200, b'{"access_token": "two words\\r\\n"}', SaslAuthenticationFailed, "gives no token"),
    ],
)
def test_an_issuer_that_grants_none_is_named(
    broker: RunningBroker, server: Answers, status: int, body: bytes, error: type[KafkaError], text: str
) -> None:
    server.status, server.body = status, body
    connect = options(broker, sasl_oauthbearer_token_endpoint_url=server.url, sasl_jaas_config=GRANT)
    with Admin(**connect, default_api_timeout_ms=300) as admin, pytest.raises(error, match=text) as refused:
        admin.list_topics()
    assert server.url in str(refused.value)
    assert "hunter" not in str(refused.value)


def test_a_function_that_fails_says_so(broker: RunningBroker) -> None:
    def fail() -> str:
        raise ValueError("hunter2")

    with Admin(**options(broker, token_provider=fail)) as admin:
        with pytest.raises(SaslAuthenticationFailed, match="token_provider failed: ValueError") as failed:
            admin.list_topics()
        assert "hunter2" not in str(failed.value)


def test_the_command_line_takes_the_file_of_kafkas_tools(
    broker: RunningBroker, issuer: Issuer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token, settings = tmp_path / "token", tmp_path / "client.properties"
    token.write_text(issuer.token())
    settings.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\nsasl.jaas.config={MODULE} required;\n"
        f"sasl.login.callback.handler.class={LOGIN_HANDLER}\n"
    )
    connected = ["--bootstrap", broker.bootstrap, "--client-config", str(settings)]
    assert run(["topics", "create", "from-the-shell", *connected]) == 0
    assert run(["topics", "list", *connected]) == 0
    assert "from-the-shell" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({}, "OAUTHBEARER needs sasl_oauthbearer_token_endpoint_url, or a token_provider"),
        ({"sasl_oauthbearer_token_endpoint_url": "token"}, "it must be a URL"),
        ({"sasl_oauthbearer_token_endpoint_url": "https://a/t"}, "needs clientId and clientSecret"),
        (
            {"sasl_oauthbearer_token_endpoint_url": "https://a/t", "sasl_jaas_config": "hunter2"},
            "it must be org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
        ),
        ({"token_provider": "hunter2"}, "a function, or None"),
    ],
)
def test_a_client_says_at_once_what_is_missing(broker: RunningBroker, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        Admin(**options(broker, **more))
    assert "hunter" not in str(refused.value)


def test_one_partition_is_read_with_a_token(broker: RunningBroker, issuer: Issuer) -> None:
    connect = options(broker, token_provider=issuer.token)
    with Producer(**connect) as producer:
        producer.send("one", b"hello").result(PATIENCE_S)
    with Consumer(**connect, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("one", 0)])
        assert [each.value for each in consumer.poll(timeout_ms=PATIENCE_MS)] == [b"hello"]
