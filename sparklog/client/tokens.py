"""The token of a client with sasl_mechanism = OAUTHBEARER: its source and its renewal.

    token_provider                                    a function that returns a token; may block
    sasl_oauthbearer_token_endpoint_url = file://…    a file with the token; a change applies within FILE_S
    sasl_oauthbearer_token_endpoint_url = https://…   the client credentials grant (RFC 6749, 4.4), with the options
                                                      clientId, clientSecret and scope of sasl_jaas_config

A token is renewed after RENEWED_AT of its remaining life, as in Apache Kafka, or after a broker has refused it. If the
renewal fails, the old token is used while it is valid. Messages never contain a token or a secret.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple
from urllib.parse import urlencode

from sparklog.base.errors import ConfigError, KafkaError, NetworkException, SaslAuthenticationFailed
from sparklog.base.jaas import OAUTHBEARER_MODULE, LoginModule, basic_authorization, parse_login
from sparklog.base.urls import TIMEOUT_S, check_url, fetch, in_thread_for, path_of, without_query
from sparklog.client.config import ClientConfig

URL_OPTION = "sasl_oauthbearer_token_endpoint_url"
FILE_S = 1.0
AGAIN_S = 1.0
"""Pause after a failed renewal, while the old token is valid."""
RENEWED_AT = 0.8
UNKNOWN_LIFE_S = 60.0
"""Assumed life of a token without an expiry time."""
_TOKEN = re.compile(r"[-_~+/.A-Za-z0-9]+=*")
logger = logging.getLogger(__name__)


class Token(NamedTuple):
    """A token and its remaining life."""

    text: str
    life_s: float | None
    """None: not known."""


class TokenSource:
    """The token of one client. Used on one event loop."""

    def __init__(self, config: ClientConfig) -> None:
        """Raises ConfigError if the options name no source of tokens, or an incomplete one."""
        self._obtain = _token_source(config)
        self._most_s = FILE_S if self._is_file(config) else float("inf")
        self._lock = asyncio.Lock()
        self._text = ""
        self._due_s = self._expires_s = 0.0

    async def get(self) -> str:
        """Return a token. Raises SaslAuthenticationFailed or NetworkException if there is none."""
        if self._now() < self._due_s:
            return self._text
        async with self._lock:
            if self._now() >= self._due_s:
                await self._renew()
        return self._text

    def refused(self) -> None:
        """Request a new token for the next call, after a broker has refused this one."""
        self._due_s = 0.0

    async def _renew(self) -> None:
        try:
            token = await in_thread_for(2 * TIMEOUT_S, self._obtain)
        except (KafkaError, TimeoutError) as error:
            failure = error if isinstance(error, KafkaError) else NetworkException("no token in time")
            if self._now() >= self._expires_s:
                raise failure from None
            logger.warning("%s; the old token is used while it is valid", failure)
            self._due_s = self._now() + AGAIN_S
            return
        life_s = UNKNOWN_LIFE_S if token.life_s is None else token.life_s
        self._text, self._expires_s = token.text, self._now() + life_s
        self._due_s = self._now() + min(RENEWED_AT * life_s, self._most_s)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    @staticmethod
    def _is_file(config: ClientConfig) -> bool:
        return config.token_provider is None and bool(path_of(config.sasl_oauthbearer_token_endpoint_url))


def _token_source(config: ClientConfig) -> Callable[[], Token]:
    """Return the function that obtains tokens. Raises ConfigError."""
    if config.token_provider:
        return partial(_token_from_provider, config.token_provider)
    url = config.sasl_oauthbearer_token_endpoint_url
    if not url:
        raise ConfigError(f"sasl_mechanism = OAUTHBEARER needs {URL_OPTION}, or a token_provider")
    check_url(URL_OPTION, url)
    text = config.sasl_jaas_config
    login = parse_login("sasl_jaas_config", text, OAUTHBEARER_MODULE) if text else LoginModule(OAUTHBEARER_MODULE, ())
    if path_of(url):
        return partial(_token_from_file, url)
    if not (login.option("clientId") and login.option("clientSecret")):
        raise ConfigError(
            f"sasl_jaas_config: {without_query(url)} needs clientId and clientSecret of {OAUTHBEARER_MODULE}"
        )
    return partial(_token_from_endpoint, url, login)


def _token_from_provider(provider: Callable[[], str]) -> Token:
    try:
        text = provider()
    except Exception as error:
        raise SaslAuthenticationFailed(f"token_provider failed: {type(error).__name__}") from error
    return _checked_token(text, "token_provider")


def _token_from_file(url: str) -> Token:
    return _checked_token(fetch(url).decode("ascii", "replace").strip(), without_query(url))


def _token_from_endpoint(url: str, login: LoginModule) -> Token:
    form = {"grant_type": "client_credentials"} | ({"scope": scope} if (scope := login.option("scope")) else {})
    name, value = basic_authorization(login.option("clientId"), login.option("clientSecret"))
    answer = fetch(url, form=urlencode(form).encode(), headers={name: value, "Accept": "application/json"})
    try:
        found = json.loads(answer)
        token, life_s = found["access_token"], found.get("expires_in")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise SaslAuthenticationFailed(f"{without_query(url)} has no access_token in its answer") from None
    usable = _checked_token(token, without_query(url))
    if usable.life_s is None and isinstance(life_s, int | float):
        return usable._replace(life_s=float(life_s))
    return usable


def _checked_token(text: object, source: str) -> Token:
    """Return the token of `text`. Raises SaslAuthenticationFailed, with the source, for invalid text."""
    if not (isinstance(text, str) and _TOKEN.fullmatch(text)):
        raise SaslAuthenticationFailed(f"{source} gives no token: it must be one word, such as a JSON Web Token")
    return Token(text, _life_s(text))


def _life_s(token: str) -> float | None:
    """Return the remaining life of a JSON Web Token in s; None without an expiry time. The signature is not checked."""
    try:
        payload = token.split(".")[1]
        expires_s = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["exp"]
        return float(expires_s - time.time())
    except (IndexError, ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None
