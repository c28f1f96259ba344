"""Users of PLAIN from a line of JAAS, and brokers with SASL: failed starts and warnings."""

from __future__ import annotations

import pytest

from sparklog.base.errors import ConfigError
from sparklog.server.plain_users import parse_plain_users
from sparklog.testing import start_broker

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.mark.parametrize(
    ("options", "users"),
    [
        (' user_alice="secret"', {"alice": "secret"}),
        (' username="broker" password="x" user_alice="a" user_b.c-d=e', {"alice": "a", "b.c-d": "e"}),
        ('\n  user_alice = "a b;c=d"\n', {"alice": "a b;c=d"}),
        (r' user_alice="\"quoted\" \\"', {"alice": '"quoted" \\'}),
        (' "user_a@example.org"="x"', {"a@example.org": "x"}),
        ("", {}),
    ],
)
def test_users_are_read_as_kafka_writes_them(options: str, users: dict[str, str]) -> None:
    assert parse_plain_users(f"{MODULE}{options};") == users


def test_no_text_is_no_users() -> None:
    assert parse_plain_users("  ") == {}


@pytest.mark.parametrize(
    "text",
    [
        f'{MODULE} user_alice="hunter2"',  # no semicolon
        f'{MODULE} user_alice="hunter2;',  # no end
        f'{MODULE} user_alice="hunter2"; and more',
        f'{MODULE} user_alice="hunter2" user_alice="hunter3";',  # twice
        f'{MODULE} alice="hunter2";',
        f'{MODULE} user_="hunter2";',
        f'{MODULE} user_alice="";',  # an empty password would let everybody in
        'org.apache.kafka.common.security.scram.ScramLoginModule required user_alice="hunter2";',
        "hunter2",
    ],
)
def test_anything_else_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_plain_users(text)

    assert "hunter" not in str(refused.value)


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"plain_sasl_jaas_config": "hunter2"}, r"plain.sasl.jaas.config: it must be"),
        ({"sasl_enabled_mechanisms": "PLAIN"}, r"needs plain.sasl.jaas.config"),
    ],
)
def test_a_broker_that_could_let_nobody_in_does_not_start(keys: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        start_broker(listeners=("SASL_PLAINTEXT://127.0.0.1:0",), **keys)


@pytest.mark.parametrize(("grpc_listener", "warns"), [("0.0.0.0:0", True), ("127.0.0.1:0", False)])
def test_an_open_grpc_listener_beside_sasl_is_warned_of(
    caplog: pytest.LogCaptureFixture, grpc_listener: str, warns: bool
) -> None:
    start_broker(listeners=("SASL_PLAINTEXT://127.0.0.1:0",), grpc_listener=grpc_listener).stop()

    assert ("does not: see docs/guides/security.md" in caplog.text) is warns
