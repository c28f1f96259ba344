"""The keys that verify tokens: a JSON Web Key Set (RFC 7517) behind a URL, fetched again at intervals.

The set is fetched every `sasl.oauthbearer.jwks.endpoint.refresh.ms`. A token with an unknown key id causes a fetch at
once, but at most every PAUSE_S, because any client may send such tokens. A file is also read when it changes
(server/reloading.py). After a failed fetch the old keys stay, with a warning.

Only public keys of asymmetric algorithms are used. A symmetric key in the set (kty oct) is ignored: with it, a reader
of the set could sign tokens.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any, NamedTuple

import jwt

from sparklog.base.errors import ConfigError, KafkaError, NetworkException
from sparklog.base.urls import TIMEOUT_S, check_url, fetch, in_thread_for, path_of, without_query
from sparklog.runtime.remote_waits import waiting_for_others

KEY = "sasl.oauthbearer.jwks.endpoint.url"
PAUSE_S = 5.0
"""Minimum time between two fetches for tokens with unknown keys."""
MAX_KEYS = 100
_RSA = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVES = {
    "P-256": frozenset({"ES256"}), "P-384": frozenset({"ES384"}), "P-521": frozenset({"ES512"}),
    "secp256k1": frozenset({"ES256K"}), "Ed25519": frozenset({"EdDSA"}), "Ed448": frozenset({"EdDSA"}),
}  # fmt: skip
_PUBLIC = ("kty", "n", "e", "crv", "x", "y")
"""The parameters of a public key; those of private keys are dropped."""
logger = logging.getLogger(__name__)


class VerificationKey(NamedTuple):
    """One public key."""

    key_id: str | None
    algorithms: frozenset[str]
    """Signature algorithms of the key."""
    key: Any
    """A key of the package cryptography."""


def parse_keys(content: bytes) -> tuple[VerificationKey, ...]:
    """Return the usable keys of a set; other keys are skipped, as RFC 7517 says.

    Raises ConfigError if there is none.
    """
    try:
        found = json.loads(content)["keys"]
        keys = [key for each in found[:MAX_KEYS] if isinstance(each, dict) and (key := _parse_key(each))]
    except (ValueError, KeyError, TypeError, RecursionError):
        keys = []
    if not keys:
        raise ConfigError('no JSON Web Key Set with a public key: {"keys": [{"kty": "RSA", …}]}')
    return tuple(keys)


class JsonWebKeys:
    """The keys of one broker. Used on one event loop, except `read_file`."""

    def __init__(self, url: str, refresh_ms: int) -> None:
        """Raises ConfigError if `url` is no URL, or that of a file without keys."""
        check_url(KEY, url)
        self.url = url
        self.path = path_of(url)
        """The file; empty if the set is fetched over HTTP."""
        self._refresh_s = refresh_ms / 1000
        self._keys: tuple[VerificationKey, ...] = ()
        self._fetching: asyncio.Task[None] | None = None
        self._fetched_at: float | None = None
        self._repeating: asyncio.Task[None] | None = None
        if self.path:
            self.read_file()

    def read_file(self) -> None:
        """Read the file. Blocks. Raises ConfigError with the path, and keeps the old keys, if it has no keys."""
        try:
            self._keys = parse_keys(fetch(self.url))
        except (NetworkException, ConfigError) as error:
            raise ConfigError(f"{KEY} = {without_query(self.url)}: {error}") from None

    def start(self) -> None:
        """Fetch the keys now, and then at intervals."""
        self._repeating = asyncio.create_task(self._fetch_at_intervals(), name="fetching the JSON Web Key Set")

    async def stop(self) -> None:
        """Stop fetching, and ignore the result of a fetch under way. The keys stay."""
        for task in (self._repeating, self._fetching):
            if task:
                task.cancel()
                await asyncio.wait((task,))

    async def find(self, key_id: str | None, algorithm: str) -> list[VerificationKey]:
        """Return the candidates for the key of a signature; fetches the set if there is none.

        key_id: None for a token without one: then every key for the algorithm
        """
        if not (found := self._candidates(key_id, algorithm)):
            with waiting_for_others():
                await self._fetch_for_unknown()
            found = self._candidates(key_id, algorithm)
        return found

    def _candidates(self, key_id: str | None, algorithm: str) -> list[VerificationKey]:
        return [key for key in self._keys if key_id in (None, key.key_id) and algorithm in key.algorithms]

    async def _fetch_for_unknown(self) -> None:
        now = asyncio.get_running_loop().time()
        is_fetching = self._fetching is not None and not self._fetching.done()
        if is_fetching or self._fetched_at is None or now - self._fetched_at >= PAUSE_S:
            await self._fetch()

    async def _fetch(self) -> None:
        """Fetch the set, once for all waiting callers."""
        if self._fetching is None or self._fetching.done():
            self._fetched_at = asyncio.get_running_loop().time()
            self._fetching = asyncio.create_task(self._fetch_and_replace())
        await asyncio.wait((self._fetching,))

    async def _fetch_and_replace(self) -> None:
        why: object
        try:
            self._keys = await in_thread_for(2 * TIMEOUT_S, lambda: parse_keys(fetch(self.url)))
            return
        except TimeoutError:
            why = f"no answer in {2 * TIMEOUT_S} s"
        except (KafkaError, ConfigError) as error:
            why = error
        kept = f"the {len(self._keys)} keys fetched before stay" if self._keys else "no token is accepted until then"
        logger.warning("%s = %s: %s; %s", KEY, without_query(self.url), why, kept)

    async def _fetch_at_intervals(self) -> None:
        while True:
            await self._fetch()
            await asyncio.sleep(self._refresh_s if self._keys else min(self._refresh_s, PAUSE_S))


def _parse_key(found: dict[str, Any]) -> VerificationKey | None:
    """Return a key of the set; None unless it is for signatures of an asymmetric algorithm."""
    kind, key_id, use = found.get("kty"), found.get("kid"), found.get("use", "sig")
    algorithms = _RSA if kind == "RSA" else _CURVES.get(str(found.get("crv"))) if kind in ("EC", "OKP") else None
    if not algorithms or use != "sig" or not isinstance(key_id, str | None):
        return None
    if named := found.get("alg"):
        algorithms &= {named}
    try:
        public = {name: found[name] for name in _PUBLIC if name in found}
        key = jwt.PyJWK(public, min(algorithms)).key if algorithms else None
    except (jwt.PyJWTError, ValueError, TypeError):  # not logged: their texts repeat the key
        key = None
    return VerificationKey(key_id, algorithms, key) if key else None
