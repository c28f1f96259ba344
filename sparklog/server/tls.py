"""TLS for listeners, configured by Kafka's keys, from PEM files (KIP-651).

    ssl.keystore.location     one file: the private key, encrypted or not, and the certificates, the broker's own first
    ssl.truststore.location   one file: the certificates of the authorities for clients
    ssl.client.auth           none, requested, required; the last two need a truststore, because no public authority
                              signs the certificates of a private cluster's clients

The files are reloaded when they change (server/reloading.py): new connections use the new certificates, open
connections stay. Kafka listeners use Python's `ssl`. The gRPC listener uses gRPC's own TLS, which does not accept an
encrypted key and cannot request a certificate without requiring it.
"""

from __future__ import annotations

import ssl
from typing import Any, NamedTuple

import grpc

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import ConfigError
from sparklog.base.pem import read_keystore_for_grpc, read_pem

HANDSHAKE_TIMEOUT_S = 10.0
"""Time limit of a TLS handshake."""
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def server_context(config: BrokerConfig) -> ssl.SSLContext:
    """Return the context for SSL and SASL_SSL listeners. Raises ConfigError with the key if a file is unusable."""
    if not config.ssl_keystore_location:
        raise ConfigError("ssl.keystore.location is missing: a PEM file with the private key and its certificates")
    read_pem("ssl.keystore.location", config.ssl_keystore_location)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [_VERSIONS[name] for name in config.ssl_enabled_protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        # An empty password is passed too: without one, OpenSSL prompts on the terminal.
        context.load_cert_chain(config.ssl_keystore_location, password=config.ssl_key_password)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(
            f"ssl.keystore.location = {config.ssl_keystore_location!r}: no private key that ssl.key.password opens, "
            f"with the certificate that belongs to it ({_reason(error)})"
        ) from None
    if _read_truststore(config):
        try:
            context.load_verify_locations(cafile=config.ssl_truststore_location)
        except ssl.SSLError as error:
            raise ConfigError(
                f"ssl.truststore.location = {config.ssl_truststore_location!r}: {_reason(error)}"
            ) from None
    context.verify_mode = _CLIENT_AUTH[config.ssl_client_auth]
    return context


class Certificates(NamedTuple):
    """The certificates of one read of the files, in the forms of `ssl` and gRPC."""

    context: ssl.SSLContext
    """For Kafka listeners."""
    grpc_listener: Any
    """gRPC's configuration of server certificates; None: the gRPC listener has no TLS."""
    grpc_peers: Any
    """Credentials for calls to other brokers: this broker's certificate, and its truststore; None without TLS."""


class TlsFiles:
    """The keys and certificates of one broker's listeners. Any thread may call `reload`."""

    def __init__(self, config: BrokerConfig) -> None:
        """Raises ConfigError with the key if a file cannot be used."""
        self._config = config
        self.current = self._read()

    def reload(self) -> None:
        """Read the files again. Raises ConfigError, and keeps the old certificates, if a file cannot be used."""
        self.current = self._read()

    def server_credentials(self) -> Any:
        """Return the gRPC listener's credentials, which fetch the certificates before each handshake."""
        told = self.current.grpc_listener

        def fetch() -> Any:
            nonlocal told
            if told is self.current.grpc_listener:
                return None
            told = self.current.grpc_listener
            return told

        is_required = self._config.ssl_client_auth == "required"
        return grpc.dynamic_ssl_server_credentials(told, fetch, require_client_authentication=is_required)

    def _read(self) -> Certificates:
        config = self._config
        context = server_context(config)  # checks the files, because gRPC reports no reason
        if not config.grpc_security_protocol.endswith("SSL"):
            return Certificates(context, None, None)
        keystore = read_keystore_for_grpc("ssl.keystore.location", config.ssl_keystore_location)
        trusted = _read_truststore(config)
        return Certificates(
            context,
            grpc.ssl_server_certificate_configuration(((keystore, keystore),), root_certificates=trusted),
            grpc.ssl_channel_credentials(root_certificates=trusted, private_key=keystore, certificate_chain=keystore),
        )


def _read_truststore(config: BrokerConfig) -> bytes | None:
    if config.ssl_truststore_location:
        return read_pem("ssl.truststore.location", config.ssl_truststore_location)
    if config.ssl_client_auth != "none":
        raise ConfigError(
            f"ssl.client.auth = {config.ssl_client_auth} needs ssl.truststore.location: the authorities for clients"
        )
    return None


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
