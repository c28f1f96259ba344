"""SASL in Kafka's protocol: the mechanisms PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512, and their use by a session.

PLAIN (RFC 4616) checks the users of `plain.sasl.jaas.config`. SCRAM (RFC 5802, by the package `scramp`) checks the
credentials in the cluster store, which are read for each exchange. So a changed password applies at once to new
exchanges and does not affect existing connections. There is no channel binding, as in Apache Kafka.

An unknown user goes through the same steps as a known one, with a credential that matches no password, and gets the
same error. Names of SCRAM users are normalized (SASLprep) before the look-up, as RFC 5802 requires. Apache Kafka does
not do this, which makes a difference for some names beyond ASCII.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import scramp
from scramp.core import Salt

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import ConfigError, KafkaError, SaslAuthenticationFailed
from sparklog.base.jaas import PLAIN_MODULE, parse_login
from sparklog.broker.apis.sasl import SASL_AUTHENTICATE, SaslAuthenticateRequest
from sparklog.broker.node import Broker
from sparklog.broker.sasl import Authenticated, Authentication, Exchange, FindCredentials
from sparklog.cluster.users import MIN_ITERATIONS, ScramCredential, ScramMechanism
from sparklog.server.kafka.translation import Session
from sparklog.server.open_listeners import is_grpc_open

Salt.MIN_LENGTH = 1  # Kafka clients choose the salts; neither Kafka nor RFC 5802 requires a minimum length

logger = logging.getLogger(__name__)
PLAIN = "PLAIN"
Mechanisms = Mapping[str, Callable[[], Exchange]]
_SECRET = secrets.token_bytes(32)
"""Derives the credentials of unknown users; each name has the same one while this process runs."""


class PlainExchange:
    """The PLAIN exchange of one message: [authorization id] NUL user NUL password."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self.user: str | None = None
        self.claimed: str | None = None
        self._passwords = passwords

    def step(self, token: bytes, credentials: FindCredentials) -> bytes:
        try:
            acting_as, user, password = token.decode().split("\0")
        except ValueError:  # UnicodeDecodeError is one
            raise SaslAuthenticationFailed("Invalid SASL/PLAIN response: it must be three texts") from None
        self.claimed = user
        expected = self._passwords.get(user, "")
        is_right = hmac.compare_digest(_digest(password), _digest(expected)) and bool(expected)
        if not is_right or acting_as not in ("", user):
            raise SaslAuthenticationFailed("Authentication failed: Invalid username or password")
        self.user = user
        return b""


class ScramExchange:
    """The SCRAM exchange of two client messages: user and nonce, then the proof of the password."""

    def __init__(self, mechanism: ScramMechanism) -> None:
        self.user: str | None = None
        self._mechanism = mechanism
        self.claimed: str | None = None
        self._server: Any = None

    def step(self, token: bytes, credentials: FindCredentials) -> bytes:
        try:
            if self.claimed is None:
                find = partial(self._find, credentials)
                self._server = scramp.ScramMechanism(self._mechanism.sasl_name).make_server(find)
                self._server.set_client_first(token.decode())
                return str(self._server.get_server_first()).encode()
            self._server.set_client_final(token.decode())
            final = str(self._server.get_server_final()).encode()
        except (scramp.ScramException, UnicodeDecodeError):
            raise SaslAuthenticationFailed(
                "Authentication failed during authentication due to invalid credentials with SASL mechanism "
                + self._mechanism.sasl_name
            ) from None
        self.user = self.claimed
        return final

    def _find(self, credentials: FindCredentials, user: str) -> tuple[bytes, bytes, bytes, int]:
        self.claimed = user
        nobody = _credential_of_nobody(self._mechanism, user)
        found = credentials(user).get(self._mechanism, nobody)
        return found.salt, found.stored_key, found.server_key, found.iterations


def mechanisms(config: BrokerConfig) -> Mechanisms:
    """Return the enabled mechanisms by name, each with a function that begins an exchange.

    PLAIN is left out if it has no users, because clients would send passwords in
    vain. Raises ConfigError if `plain.sasl.jaas.config` is invalid or no mechanism is enabled.
    """
    passwords = parse_plain_users(config.plain_sasl_jaas_config)
    known: dict[str, Callable[[], Exchange]] = {PLAIN: partial(PlainExchange, passwords)} if passwords else {}
    known |= {mechanism.sasl_name: partial(ScramExchange, mechanism) for mechanism in ScramMechanism}
    enabled = {name: known[name] for name in config.sasl_enabled_mechanisms if name in known}
    if not enabled:
        raise ConfigError("sasl.enabled.mechanisms = PLAIN needs plain.sasl.jaas.config: the users and their passwords")
    _warn_where_grpc_is_open(config)
    return enabled


def begin(broker: Broker, session: Session, enabled: Mechanisms) -> None:
    """Require authentication with one of the enabled mechanisms on a new connection before any other request."""
    config = broker.config
    authentication = Authentication(enabled, broker.clock, config.connections_max_reauth_ms, session.host)
    session.require(authentication, _admit, max_request_bytes=config.sasl_server_max_receive_size)


async def take_token(broker: Broker, session: Session, token: bytes) -> Authenticated:
    """Process the next message of the exchange. Raises KafkaError if it fails; the connection must then be closed."""
    request = SaslAuthenticateRequest(authentication=session.authentication, token=token)
    try:
        done = await broker.serve(SASL_AUTHENTICATE, request)
    except KafkaError as error:
        if session.authentication:
            session.end()
        logger.info("failed authentication from %s on %s: %s", session.host, session.listener, error)
        raise
    if session.authentication and session.authentication.user:
        session.authenticated(session.authentication.user, max_request_bytes=broker.config.socket_request_max_bytes)
    return done


def _warn_where_grpc_is_open(config: BrokerConfig) -> None:
    """Log a warning if gRPC accepts unauthenticated clients, because they bypass SASL on the Kafka listeners."""
    if is_grpc_open(config):
        logger.warning(
            "SASL listeners ask clients who they are, but gRPC on %s does not: see docs/guides/security.md",
            config.grpc_listener,
        )


def _admit(session: Session, api_key: int) -> None:
    if session.authentication:
        session.authentication.admit(api_key)


def _digest(text: str) -> bytes:
    """Return a digest of fixed length, so that the time of a comparison does not depend on the text."""
    return hmac.digest(_SECRET, text.encode(), "sha256")


def _credential_of_nobody(mechanism: ScramMechanism, user: str) -> ScramCredential:
    return ScramCredential(
        salt=hmac.digest(_SECRET, user.encode(), "sha256"),
        iterations=MIN_ITERATIONS,
        stored_key=hmac.digest(_SECRET, b"stored" + user.encode(), mechanism.hash),
        server_key=hmac.digest(_SECRET, b"server" + user.encode(), mechanism.hash),
    )


_PREFIX = "user_"


def parse_plain_users(text: str) -> dict[str, str]:
    """Return the passwords by user; empty for an empty text. Raises ConfigError if the text has another form.

    The text is a line of JAAS configuration, as in Apache Kafka:

        org.apache.kafka.common.security.plain.PlainLoginModule required
            username="broker" password="…"          with which this broker calls others (server/grpc/peers.py)
            user_alice="her password"
            user_bob="his";
    """
    if not text.strip():
        return {}
    login = parse_login("plain.sasl.jaas.config", text, PLAIN_MODULE)
    users: dict[str, str] = {}
    for name, value in login.options:
        if name in ("username", "password"):
            continue
        user = name.removeprefix(_PREFIX)
        if not (name.startswith(_PREFIX) and user and value) or user in users:
            raise ConfigError("plain.sasl.jaas.config: each user is given once, as user_NAME=PASSWORD")
        users[user] = value
    return users
