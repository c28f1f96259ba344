"""Verification of user and password of a gRPC call (`authorization: Basic`), with the users of SASL.

A user of PLAIN has the password of `plain.sasl.jaas.config`; a user of SCRAM has a credential in the cluster
store. Only mechanisms of `sasl.enabled.mechanisms` count.

The check of a SCRAM password takes thousands of hashes, and each call brings a password. So a right password is cached
for REMEMBERED_S: a changed or deleted password stays valid for as long. A wrong password and an unknown user take the
same steps and get the same error, after `connection.failed.authentication.delay.ms`.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import SaslAuthenticationFailed
from sparklog.cluster.users import MIN_ITERATIONS, ScramCredential, ScramMechanism
from sparklog.server.plain_users import PLAIN, PlainUsers

REMEMBERED_S = 60.0
MAX_REMEMBERED = 10_000
FEW = 4
"""Maximum number of concurrent checks: each takes milliseconds of a thread."""
logger = logging.getLogger(__name__)
FindCredentials = Callable[[str], Awaitable[Mapping[ScramMechanism, ScramCredential]]]


class PasswordVerifier:
    """The passwords that one broker accepts. Used on one event loop."""

    def __init__(self, config: BrokerConfig, users: PlainUsers, find_credentials: FindCredentials) -> None:
        self._plain = users if PLAIN in config.sasl_enabled_mechanisms else None
        self._mechanisms = [each for each in ScramMechanism if each.sasl_name in config.sasl_enabled_mechanisms]
        self._delay_s = config.connection_failed_authentication_delay_ms / 1000
        self._find_credentials = find_credentials
        self._few = asyncio.Semaphore(FEW)
        self._secret = secrets.token_bytes(32)
        self._known: dict[bytes, float] = {}
        """Expiry of right passwords: keys are user and password, hashed with the secret."""

    async def check(self, user: str, password: str) -> None:
        """Raise SaslAuthenticationFailed if this is not the user's password."""
        loop = asyncio.get_running_loop()
        known = hmac.digest(self._secret, f"{len(user)}:{user}{password}".encode(), "sha256")
        if self._known.get(known, 0.0) > loop.time():
            return
        async with self._few:
            is_right = await self._is_right(user, password)
        if not is_right:
            logger.warning("user %r could not log in over gRPC", user)
            await asyncio.sleep(self._delay_s)
            raise SaslAuthenticationFailed("Authentication failed: Invalid username or password")
        if len(self._known) >= MAX_REMEMBERED:
            self._known.clear()
        self._known[known] = loop.time() + REMEMBERED_S

    async def _is_right(self, user: str, password: str) -> bool:
        if self._plain and self._plain.is_right(user, password):
            return True
        found = await self._find_credentials(user) if self._mechanisms else {}
        checks = [await asyncio.to_thread(self._verify, each, found.get(each), password) for each in self._mechanisms]
        return any(checks)

    def _verify(self, mechanism: ScramMechanism, credential: ScramCredential | None, password: str) -> bool:
        """Return whether the credential is of this password. Blocks, for the same time without a credential."""
        salt = credential.salt if credential else b"0"
        iterations = credential.iterations if credential else MIN_ITERATIONS
        made = ScramCredential.of_password(mechanism, password, salt, iterations)
        return credential is not None and hmac.compare_digest(made.stored_key, credential.stored_key)
