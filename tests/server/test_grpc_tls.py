"""TLS on the gRPC listener, for sparklog's client and the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from sparklog.base.errors import ConfigError, NetworkException
from sparklog.cli import run
from sparklog.client import Admin, Consumer, Producer
from sparklog.testing import RunningBroker, start_broker
from support.patience import PATIENCE_MS, PATIENCE_S


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """server.pem and client.pem with keys, both signed by ca.pem, and other.pem as another authority."""
    folder = tmp_path_factory.mktemp("keys")
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    authority.issue_cert("billing", common_name="billing").private_key_and_cert_chain_pem.write_to_path(
        folder / "client.pem"
    )
    authority.cert_pem.write_to_path(folder / "ca.pem")
    trustme.CA().cert_pem.write_to_path(folder / "other.pem")
    return folder


@pytest.fixture(scope="module")
def broker(keys: Path) -> Iterator[RunningBroker]:
    """A broker that requires certificates of its clients."""
    with start_broker(
        grpc_security_protocol="SSL",
        ssl_keystore_location=str(keys / "server.pem"),
        ssl_truststore_location=str(keys / "ca.pem"),
        ssl_client_auth="required",
    ) as running:
        yield running


def options(
    broker: RunningBroker,
    keys: Path,
    *,
    trusted: str = "ca.pem",
    own: str = "client.pem",
    timeout_ms: int = PATIENCE_MS,
) -> dict[str, object]:
    return {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SSL",
        "ssl_truststore_location": str(keys / trusted),
        "ssl_keystore_location": str(keys / own) if own else "",
        "default_api_timeout_ms": timeout_ms,
    }


def test_records_go_through_tls_both_ways(broker: RunningBroker, keys: Path) -> None:
    with Producer(**options(broker, keys)) as producer:
        producer.send("secret", b"hello").result(PATIENCE_S)
    with Consumer(**options(broker, keys) | {"auto_offset_reset": "earliest"}) as consumer:
        consumer.assign_topic("secret")
        [record] = consumer.poll(PATIENCE_MS)

    assert record.value == b"hello"


def test_a_client_without_tls_gets_nothing(broker: RunningBroker) -> None:
    with (
        Admin(bootstrap_servers=broker.bootstrap, default_api_timeout_ms=300) as admin,
        pytest.raises(NetworkException),
    ):
        admin.list_topics()


@pytest.mark.slow
@pytest.mark.parametrize(("trusted", "own"), [("ca.pem", ""), ("other.pem", "client.pem")])
def test_neither_side_talks_to_a_stranger(broker: RunningBroker, keys: Path, trusted: str, own: str) -> None:
    refused = options(broker, keys, trusted=trusted, own=own, timeout_ms=300)
    with Admin(**refused) as admin, pytest.raises(NetworkException):
        admin.list_topics()


def test_the_command_line_takes_a_file_of_client_settings(
    broker: RunningBroker, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text(
        "# as kafka-topics.sh takes it with --command-config\n"
        f"security.protocol=SSL\nssl.truststore.location = {keys / 'ca.pem'}\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={keys / 'client.pem'}\n"
    )
    connected = ["--bootstrap", broker.bootstrap, "--client-config", str(settings)]

    assert run(["topics", "create", "from-the-shell", *connected]) == 0
    capsys.readouterr()
    assert run(["topics", "list", *connected]) == 0
    assert "from-the-shell" in capsys.readouterr().out


def test_a_client_names_the_file_that_is_of_no_use(tmp_path: Path) -> None:
    jks = tmp_path / "trust.jks"
    jks.write_bytes(b"\xfe\xed\xfe\xed")

    with pytest.raises(ConfigError, match=r"ssl_truststore_location = .* is not a PEM file; make one of"):
        Admin(security_protocol="SSL", ssl_truststore_location=str(jks))


def test_a_line_of_client_settings_that_is_none_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text("\nsecurity.protocol SSL\n")

    assert run(["topics", "list", "--client-config", str(settings)]) == 2
    assert f"{settings}:2: 'security.protocol SSL' is not KEY=VALUE" in capsys.readouterr().err
