"""SASL in Kafka's protocol: its mechanisms, and their use by a session.

PLAIN (RFC 4616) uses the users of `plain.sasl.jaas.config`. SCRAM (RFC 5802, by the package `scramp`) uses the
credentials in the cluster store, read for each exchange. So a changed password applies at once to new exchanges, but
not to existing connections. There is no channel binding, as in Apache Kafka. OAUTHBEARER is in oauthbearer.py.

An unknown user takes the same steps as a known one, with a credential that matches no password, and gets the same
error. Names of SCRAM users are normalized (SASLprep) before the lookup, as RFC 5802 requires. Apache Kafka does not,
which differs for some names beyond ASCII.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import KafkaError, SaslAuthenticationFailed
from sparklog.broker.apis.sasl import SASL_AUTHENTICATE, SaslAuthenticateRequest
from sparklog.broker.node import Broker
from sparklog.broker.sasl import Authentication, FindCredentials, SaslExchange, SaslResponse
from sparklog.cluster.users import MIN_ITERATIONS, ScramCredential, ScramMechanism
from sparklog.server.kafka.oauthbearer import OAuthBearerExchange
from sparklog.server.kafka.translation import Session
from sparklog.server.open_listeners import is_grpc_open
from sparklog.server.plain_users import PLAIN, PlainUsers
from sparklog.server.security import OAUTHBEARER, ListenerSecurity

logger = logging.getLogger(__name__)
Mechanisms = Mapping[str, Callable[[], SaslExchange]]
_SECRET = secrets.token_bytes(32)
"""Secret for the credentials of unknown users, the same for a name during this process."""


class PlainExchange:
    """The PLAIN exchange of one message: [authorization id] NUL user NUL password. Implements SaslExchange."""

    def __init__(self, users: PlainUsers) -> None:
        self.user: str | None = None
        self.claimed: str | None = None
        self.expires_ms: int | None = None
        self._users = users

    async def step(self, token: bytes, credentials: FindCredentials) -> bytes:
        try:
            acting_as, user, password = token.decode().split("\0")
        except ValueError:  # includes UnicodeDecodeError
            raise SaslAuthenticationFailed("Invalid SASL/PLAIN response: it must be three texts") from None
        self.claimed = user
        if not self._users.is_right(user, password) or acting_as not in ("", user):
            raise SaslAuthenticationFailed("Authentication failed: Invalid username or password")
        self.user = user
        return b""


class ScramExchange:
    """The SCRAM exchange of two client messages: user and nonce, then the proof of the password.

    Implements SaslExchange.
    """

    def __init__(self, mechanism: ScramMechanism) -> None:
        self.user: str | None = None
        self._mechanism = mechanism
        self.claimed: str | None = None
        self.expires_ms: int | None = None
        self._server: Any = None

    async def step(self, token: bytes, credentials: FindCredentials) -> bytes:
        return await asyncio.to_thread(self._step, token, credentials)

    def _step(self, token: bytes, credentials: FindCredentials) -> bytes:
        try:
            if self.claimed is None:
                find = partial(self._find_credential, credentials)
                self._server = _scramp().ScramMechanism(self._mechanism.sasl_name).make_server(find)
                self._server.set_client_first(token.decode())
                return str(self._server.get_server_first()).encode()
            self._server.set_client_final(token.decode())
            final = str(self._server.get_server_final()).encode()
        except (_scramp().ScramException, UnicodeDecodeError):
            raise SaslAuthenticationFailed(
                "Authentication failed during authentication due to invalid credentials with SASL mechanism "
                + self._mechanism.sasl_name
            ) from None
        self.user = self.claimed
        return final

    def _find_credential(self, credentials: FindCredentials, user: str) -> tuple[bytes, bytes, bytes, int]:
        self.claimed = user
        unknown = _credential_of_unknown_user(self._mechanism, user)
        found = credentials(user).get(self._mechanism, unknown)
        return found.salt, found.stored_key, found.server_key, found.iterations


@cache
def _scramp() -> Any:
    """Return the package, imported for the first SCRAM client."""
    import scramp  # here: a thirtieth of a broker's start
    from scramp.core import Salt

    Salt.MIN_LENGTH = 1  # clients choose the salts; neither Kafka nor RFC 5802 requires a minimum length
    return scramp


def mechanisms(config: BrokerConfig, security: ListenerSecurity) -> Mechanisms:
    """Return the enabled mechanisms by name, each with a function that begins an exchange.

    PLAIN is omitted without users, so that clients do not send passwords for it.
    """
    known: dict[str, Callable[[], SaslExchange]] = {
        mechanism.sasl_name: partial(ScramExchange, mechanism) for mechanism in ScramMechanism
    }
    if security.users and security.users.has_any:
        known[PLAIN] = partial(PlainExchange, security.users)
    if security.tokens:
        known[OAUTHBEARER] = partial(OAuthBearerExchange, security.tokens)
    return {name: known[name] for name in config.sasl_enabled_mechanisms if name in known}


def begin(broker: Broker, session: Session, security: ListenerSecurity) -> None:
    """Require authentication with one of the enabled mechanisms on a new connection."""
    config = broker.config
    enabled = mechanisms(config, security)
    authentication = Authentication(enabled, broker.clock, config.connections_max_reauth_ms, session.host)
    session.require(authentication, _check_authenticated, max_request_bytes=config.sasl_server_max_receive_size)


async def take_token(broker: Broker, session: Session, token: bytes) -> SaslResponse:
    """Return the answer to the next message of the exchange.

    Raises KafkaError if it fails; the connection must then be closed.
    """
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


def warn_where_grpc_is_open(config: BrokerConfig) -> None:
    """Log a warning if gRPC accepts unauthenticated clients, because they bypass SASL on the Kafka listeners."""
    if is_grpc_open(config):
        logger.warning(
            "SASL listeners authenticate clients, but gRPC on %s does not: see docs/guides/security.md",
            config.grpc_listener,
        )


def _check_authenticated(session: Session, api_key: int) -> None:
    if session.authentication:
        session.authentication.admit(api_key)


def _credential_of_unknown_user(mechanism: ScramMechanism, user: str) -> ScramCredential:
    return ScramCredential(
        salt=hmac.digest(_SECRET, user.encode(), "sha256"),
        iterations=MIN_ITERATIONS,
        stored_key=hmac.digest(_SECRET, b"stored" + user.encode(), mechanism.hash),
        server_key=hmac.digest(_SECRET, b"server" + user.encode(), mechanism.hash),
    )
