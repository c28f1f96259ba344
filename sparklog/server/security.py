"""The means of authentication of one broker's listeners: certificates, users of PLAIN, keys of tokens.

They come from the configuration, and are reloaded when a file changes (server/reloading.py):

    ssl.keystore.location, ssl.truststore.location   for new connections of all listeners
    plain.sasl.jaas.config                           if the file of --config has it; no other key of that file
    sasl.oauthbearer.jwks.endpoint.url               if it is a file
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from sparklog.base.clock import Clock, SystemClock
from sparklog.base.config import BROKER_KEYS, BrokerConfig
from sparklog.base.errors import ConfigError
from sparklog.base.listeners import parse_listeners
from sparklog.server.plain_users import KEY, PlainUsers
from sparklog.server.reloading import ReloadedFiles, Reloader
from sparklog.server.tls import TlsFiles

if TYPE_CHECKING:
    from sparklog.server.json_web_keys import JsonWebKeys
    from sparklog.server.tokens import TokenVerifier

OAUTHBEARER = "OAUTHBEARER"
JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
logger = logging.getLogger(__name__)


class ConfigFile(NamedTuple):
    """The configuration file, and its reader."""

    path: str
    read: Callable[[], BrokerConfig]
    """Reads the whole configuration again. Raises ConfigError."""


class ListenerSecurity:
    """Certificates, users and token keys of one broker. Create it before the listeners.

    Start and stop it on the event loop of the broker.
    """

    def __init__(self, config: BrokerConfig, *, clock: Clock | None = None, file: ConfigFile | None = None) -> None:
        """Raises ConfigError with the key if a file or a text cannot be used."""
        self._config = config
        self._reloader = Reloader()
        protocols = [config.grpc_security_protocol]
        told, map_ = config.advertised_listeners, config.listener_security_protocol_map
        for listener in parse_listeners(config.listeners, told, map_, "localhost"):
            protocols.append("SASL_" * listener.has_sasl + ("SSL" if listener.has_tls else "PLAINTEXT"))
        self.tls = self._read_tls() if any(each.endswith("SSL") for each in protocols) else None
        """The certificates; None: no listener uses TLS."""
        has_sasl = any(each.startswith("SASL_") for each in protocols)
        self.users = PlainUsers(config) if has_sasl else None
        """The users of PLAIN; None: no listener uses SASL."""
        self.tokens = self._read_keys(clock or SystemClock()) if has_sasl else None
        """The tokens; None: OAUTHBEARER is not enabled."""
        if file and self.users:
            files = ReloadedFiles("users of PLAIN", [file.path])
            self._reloader.add(files, partial(self._reload_users, file, self.users))

    def start(self) -> None:
        """Fetch the keys of tokens, and check files for changes, until `stop`."""
        self._reloader.start()
        if self.tokens and not self.tokens.keys.path:
            self.tokens.keys.start()

    async def stop(self) -> None:
        """Stop fetching keys and checking files."""
        await self._reloader.stop()
        if self.tokens:
            await self.tokens.keys.stop()

    def _read_tls(self) -> TlsFiles:
        config = self._config
        paths = [path for path in (config.ssl_keystore_location, config.ssl_truststore_location) if path]
        files = ReloadedFiles("certificates", paths)
        tls = TlsFiles(config)
        self._reloader.add(files, tls.reload)
        return tls

    def _read_keys(self, clock: Clock) -> TokenVerifier | None:
        config = self._config
        url = config.sasl_oauthbearer_jwks_endpoint_url
        if OAUTHBEARER not in config.sasl_enabled_mechanisms:
            return None
        if not url:
            raise ConfigError(f"sasl.enabled.mechanisms = {OAUTHBEARER} needs {JWKS_URL}: the keys that sign tokens")
        # Imported only if needed: the import of signature verification takes as long as a broker's start.
        keys_module = importlib.import_module("sparklog.server.json_web_keys")
        tokens_module = importlib.import_module("sparklog.server.tokens")
        files = ReloadedFiles("keys of tokens", [keys_module.path_of(url)])
        keys: JsonWebKeys = keys_module.JsonWebKeys(url, config.sasl_oauthbearer_jwks_endpoint_refresh_ms)
        if keys.path:
            self._reloader.add(files, keys.read_file)
        verifier: TokenVerifier = tokens_module.TokenVerifier(config, clock, keys)
        return verifier

    def _reload_users(self, file: ConfigFile, users: PlainUsers) -> None:
        config, running = file.read(), self._config
        users.replace(config)
        changed = [
            key.name for key in BROKER_KEYS.values() if getattr(config, key.field) != getattr(running, key.field)
        ]
        changed += ["defaults of topics"] if config.topic_defaults != running.topic_defaults else []
        if others := sorted(set(changed) - {KEY}):
            logger.warning("%s has changed; this needs a restart to apply: %s", file.path, ", ".join(others))
