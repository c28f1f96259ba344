"""The users of PLAIN, from `plain.sasl.jaas.config`; replaced when its text changes (server/security.py)."""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import Mapping

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import ConfigError
from sparklog.base.jaas import PLAIN_MODULE, basic_authorization, parse_login

PLAIN = "PLAIN"
KEY = "plain.sasl.jaas.config"
_PREFIX = "user_"
_SECRET = secrets.token_bytes(32)
logger = logging.getLogger(__name__)


class PlainUsers:
    """The users and their passwords, and this broker's login at other brokers. Any thread may replace them."""

    def __init__(self, config: BrokerConfig) -> None:
        """Raises ConfigError if `plain.sasl.jaas.config` is invalid."""
        self._wants_login = config.grpc_security_protocol.startswith("SASL_")
        self.authorization: tuple[tuple[str, str], ...] = ()
        """Metadata of this broker's calls to other brokers, if the listeners require a password."""
        self._passwords: Mapping[str, str] = {}
        self.replace(config)

    @property
    def has_any(self) -> bool:
        """Whether there are users."""
        return bool(self._passwords)

    def replace(self, config: BrokerConfig) -> None:
        """Use the users of another configuration. Raises ConfigError, and keeps the users, if its text is invalid."""
        passwords = parse_plain_users(config.plain_sasl_jaas_config)
        if not passwords and config.sasl_enabled_mechanisms == (PLAIN,):
            raise ConfigError(f"sasl.enabled.mechanisms = PLAIN needs {KEY}: the users and their passwords")
        self.authorization = _authorization(config) if self._wants_login else ()
        self._passwords = passwords

    def is_right(self, user: str, password: str) -> bool:
        """Return whether this is the user's password. Takes the same time for a wrong password and an unknown user."""
        expected = self._passwords.get(user, "")
        return hmac.compare_digest(_digest(password), _digest(expected)) and bool(expected)


def parse_plain_users(text: str) -> dict[str, str]:
    """Return the passwords by user; empty for an empty text. Raises ConfigError if the text has another form.

    The text is a line of JAAS configuration, as in Apache Kafka:

        org.apache.kafka.common.security.plain.PlainLoginModule required
            username="broker" password="…"          the login at other brokers (server/grpc/peers.py)
            user_alice="her password"
            user_bob="his";
    """
    if not text.strip():
        return {}
    login = parse_login(KEY, text, PLAIN_MODULE)
    users: dict[str, str] = {}
    for name, value in login.options:
        if name in ("username", "password"):
            continue
        user = name.removeprefix(_PREFIX)
        if not (name.startswith(_PREFIX) and user and value) or user in users:
            raise ConfigError(f"{KEY}: each user is given once, as user_NAME=PASSWORD")
        users[user] = value
    return users


def _authorization(config: BrokerConfig) -> tuple[tuple[str, str], ...]:
    text = config.plain_sasl_jaas_config
    login = parse_login(KEY, text, PLAIN_MODULE) if text.strip() else None
    if login is None or not login.option("username"):
        logger.warning(
            "%s has no username and password: this broker cannot call others, as each of a cluster must with "
            "grpc.security.protocol = %s", KEY, config.grpc_security_protocol,
        )  # fmt: skip
        return ()
    return (basic_authorization(login.option("username"), login.option("password")),)


def _digest(text: str) -> bytes:
    """Return a digest of fixed length, so that the time of a comparison is the same for every text."""
    return hmac.digest(_SECRET, text.encode(), "sha256")
