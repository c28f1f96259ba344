"""SASL on Kafka's wire: the mechanisms PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512, and how a session takes part in them.

PLAIN (RFC 4616) checks against the users of `plain.sasl.jaas.config`, SCRAM (RFC 5802, by the package `scramp`) against
the credentials in the cluster store, which are read for each exchange: a change of password holds at once, and leaves
the connections that are there alone. There is no channel binding, as in Apache Kafka.

A user who does not exist goes through the same steps as one who does, with a credential that no password fits, and
gets the same refusal. Names of SCRAM users are normalized (SASLprep) before they are looked up, as RFC 5802 says and
Apache Kafka does not: it makes a difference for some names beyond ASCII.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import Callable, Mapping
from functools import partial

import scramp
from scramp.core import Salt

from sparklog.base.addresses import Address
from sparklog.base.config import BrokerConfig
from sparklog.base.errors import ConfigError, KafkaError, SaslAuthenticationFailed
from sparklog.broker.apis import sasl_authenticate
from sparklog.broker.apis.sasl_authenticate import SaslAuthenticateRequest
from sparklog.broker.node import Broker
from sparklog.broker.sasl import Authenticated, Authentication, Exchange
from sparklog.cluster.users import MIN_ITERATIONS, ScramCredential, ScramMechanism, UserStore
from sparklog.server.kafka.jaas import parse_plain_users
from sparklog.server.kafka.translation import Session

Salt.MIN_LENGTH = 1  # those of users that clients of Kafka have made; neither Kafka nor RFC 5802 wants more

logger = logging.getLogger(__name__)
PLAIN = "PLAIN"
Mechanisms = Mapping[str, Callable[[], Exchange]]
_SECRET = secrets.token_bytes(32)
"""Makes what unknown users are checked against: the same for one name as long as this process runs."""


class PlainExchange:
    """One message: [who to act as] NUL user NUL password."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self.user: str | None = None
        self.claimed: str | None = None
        self._passwords = passwords

    def step(self, token: bytes) -> bytes:
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
    """Two messages: who it is and a nonce, then the proof of the password."""

    def __init__(self, mechanism: ScramMechanism, users: UserStore) -> None:
        self.user: str | None = None
        self._mechanism = mechanism
        self._users = users
        self.claimed: str | None = None
        self._server = scramp.ScramMechanism(mechanism.sasl_name).make_server(self._find)

    def step(self, token: bytes) -> bytes:
        try:
            if self.claimed is None:
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

    def _find(self, user: str) -> tuple[bytes, bytes, bytes, int]:
        self.claimed = user
        nobody = _credential_of_nobody(self._mechanism, user)
        found = self._users.credentials(user).get(self._mechanism, nobody)
        return found.salt, found.stored_key, found.server_key, found.iterations


def mechanisms(broker: Broker) -> Mechanisms:
    """The mechanisms that are enabled, each with what begins an exchange once the broker has started.

    PLAIN is not among them where it has no users: it would only make clients send passwords for nothing. Raises
    ConfigError where `plain.sasl.jaas.config` is wrong, or nothing is enabled.
    """
    passwords = parse_plain_users(broker.config.plain_sasl_jaas_config)
    known: dict[str, Callable[[], Exchange]] = {PLAIN: partial(PlainExchange, passwords)} if passwords else {}
    known |= {mechanism.sasl_name: partial(_begin_scram, broker, mechanism) for mechanism in ScramMechanism}
    enabled = {name: known[name] for name in broker.config.sasl_enabled_mechanisms if name in known}
    if not enabled:
        raise ConfigError("sasl.enabled.mechanisms = PLAIN needs plain.sasl.jaas.config: the users and their passwords")
    _warn_where_grpc_is_open(broker.config)
    return enabled


def begin(broker: Broker, session: Session, enabled: Mechanisms) -> None:
    """Let nothing through on a new connection until its client has shown who it is by one of `mechanisms`."""
    config = broker.config
    session.authentication = Authentication(
        enabled, broker.services.clock, config.connections_max_reauth_ms, session.host
    )
    session.admit = _admit
    session.max_request_bytes = config.sasl_server_max_receive_size


async def take_token(broker: Broker, session: Session, token: bytes) -> Authenticated:
    """The next message of the exchange; raises KafkaError, after which the connection is over."""
    request = SaslAuthenticateRequest(authentication=session.authentication, token=token)
    try:
        done = await broker.serve(sasl_authenticate.API, request)
    except KafkaError as error:
        session.is_over = session.authentication is not None
        logger.info("failed authentication from %s on %s: %s", session.host, session.listener, error)
        raise
    if session.authentication and session.authentication.user:
        session.principal = f"User:{session.authentication.user}"
        session.max_request_bytes = broker.config.socket_request_max_bytes
    return done


def _warn_where_grpc_is_open(config: BrokerConfig) -> None:
    """A password on one listener protects nothing while another listener lets everybody in."""
    host = Address.parse(config.grpc_listener, "grpc.listener").host
    asks = config.grpc_security_protocol == "SSL" and config.ssl_client_auth == "required"
    if not (asks or host in ("localhost", "::1") or host.startswith("127.")):
        logger.warning(
            "SASL listeners ask clients who they are, but gRPC on %s does not: see docs/guides/security.md",
            config.grpc_listener,
        )


def _begin_scram(broker: Broker, mechanism: ScramMechanism) -> ScramExchange:
    return ScramExchange(mechanism, broker.services.users)


def _admit(session: Session, api_key: int) -> None:
    if session.authentication:
        session.authentication.admit(api_key)


def _digest(text: str) -> bytes:
    """Of the same length for every text, so that comparing says nothing of it."""
    return hmac.digest(_SECRET, text.encode(), "sha256")


def _credential_of_nobody(mechanism: ScramMechanism, user: str) -> ScramCredential:
    return ScramCredential(
        salt=hmac.digest(_SECRET, user.encode(), "sha256"),
        iterations=MIN_ITERATIONS,
        stored_key=hmac.digest(_SECRET, b"stored" + user.encode(), mechanism.hash),
        server_key=hmac.digest(_SECRET, b"server" + user.encode(), mechanism.hash),
    )
