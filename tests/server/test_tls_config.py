"""Configured keys and certificates of a broker."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from sparklog.base.config import BROKER_KEYS, BrokerConfig, Setting, parse_broker_config
from sparklog.base.errors import ConfigError
from sparklog.server import tls


@pytest.fixture(scope="module")
def keystore(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "server.pem"
    trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(path)
    return path


@pytest.fixture(scope="module")
def encrypted(keystore: Path) -> Path:
    """The same keys, encrypted with the password "swordfish"."""
    key, end, certificates = keystore.read_bytes().partition(b"-----END EC PRIVATE KEY-----\n")
    secret = load_pem_private_key(key + end, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"swordfish")
    )
    path = keystore.with_name("encrypted.pem")
    path.write_bytes(secret + certificates)
    return path


def config(keystore: Path, **keys: str) -> BrokerConfig:
    settings = {"ssl.keystore.location": str(keystore)} | {key.replace("_", "."): raw for key, raw in keys.items()}
    return parse_broker_config(Setting(key, raw, "") for key, raw in settings.items())


def test_versions_of_tls_are_those_that_are_enabled(keystore: Path) -> None:
    both = tls.server_context(config(keystore))
    assert (both.minimum_version, both.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)

    newest = tls.server_context(config(keystore, ssl_enabled_protocols="TLSv1.3"))
    assert (newest.minimum_version, newest.maximum_version) == (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3)


def test_an_encrypted_key_is_opened_with_its_password(encrypted: Path) -> None:
    assert tls.server_context(config(encrypted, ssl_key_password="swordfish"))


@pytest.mark.parametrize("password", ["", "wrong"])
def test_a_key_that_does_not_open_is_an_error(encrypted: Path, password: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl.keystore.location = .*: no private key that ssl.key.password opens"):
        tls.server_context(config(encrypted, ssl_key_password=password))


def test_grpc_refuses_an_encrypted_key_and_says_what_to_do(encrypted: Path) -> None:
    with pytest.raises(ConfigError, match="openssl pkey -in KEYSTORE"):
        tls.TlsFiles(config(encrypted, ssl_key_password="swordfish", grpc_security_protocol="SSL"))


def test_another_form_of_store_comes_with_how_to_convert_it(keystore: Path) -> None:
    with pytest.raises(ConfigError, match=r"ssl.keystore.type = 'JKS': it must be PEM; .* keytool .* openssl pkcs12"):
        config(keystore, ssl_keystore_type="JKS")


def test_clients_with_certificates_need_somebody_who_vouches_for_them(keystore: Path) -> None:
    with pytest.raises(ConfigError, match=r"ssl.client.auth = required needs ssl.truststore.location"):
        tls.server_context(config(keystore, ssl_client_auth="required"))


def test_a_truststore_may_have_notes_between_its_certificates(keystore: Path, tmp_path: Path) -> None:
    truststore = tmp_path / "truststore.pem"
    truststore.write_bytes("Authority of Zürich\n".encode() + keystore.read_bytes())

    context = tls.server_context(config(keystore, ssl_client_auth="required", ssl_truststore_location=str(truststore)))

    assert context.verify_mode is ssl.CERT_REQUIRED


def test_a_file_without_a_key_is_an_error(keystore: Path, tmp_path: Path) -> None:
    certificates = tmp_path / "certificates.pem"
    certificates.write_bytes(keystore.read_bytes().partition(b"-----END EC PRIVATE KEY-----\n")[2])

    with pytest.raises(ConfigError, match="no private key"):
        tls.server_context(config(certificates))
    with pytest.raises(ConfigError, match=r"ssl.keystore.location is missing"):
        tls.server_context(BrokerConfig())


def test_passwords_are_not_in_the_text_of_a_configuration(keystore: Path) -> None:
    assert "swordfish" not in repr(config(keystore, ssl_key_password="swordfish", plain_sasl_jaas_config="swordfish"))


def test_the_documentation_names_every_key_of_security() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guides" / "security.md").read_text()
    keys = {key for key in BROKER_KEYS if key.startswith(("ssl.", "sasl.", "plain.")) or "security.protocol" in key}

    assert {key for key in keys if key not in page} == set()
