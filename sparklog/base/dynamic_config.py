"""The configuration of a broker as it is now (kafka.server.DynamicBrokerConfig).

A broker starts with the keys of its file, environment and arguments. Keys that may change while it runs are overridden
by those that the cluster store has for all brokers, and these by those for this broker. Readers ask for `current` each
time, or are told of a change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from sparklog.base.config import BrokerConfig, find_broker_key, with_settings
from sparklog.base.config_keys import READ_ONLY
from sparklog.base.errors import ConfigError

Overrides = Mapping[str, str]
ConfigListener = Callable[[BrokerConfig], None]
logger = logging.getLogger(__name__)


class DynamicConfig:
    """The owner of one broker's current configuration. Changed by one thread at a time; read on any."""

    def __init__(self, started_with: BrokerConfig) -> None:
        self.started_with = started_with
        self.current = started_with
        self.for_all: Overrides = {}
        """What is set for all brokers."""
        self.own: Overrides = {}
        """What is set for this broker."""
        self.generation = 0
        """Grows with each change."""
        self._tell: list[ConfigListener] = []

    def subscribe(self, tell: ConfigListener) -> None:
        """Have `tell` called with each new configuration, and now with the present one."""
        self._tell.append(tell)
        tell(self.current)

    def set_overrides(self, for_all: Overrides, own: Overrides) -> bool:
        """Replace all keys that were changed at run time; return whether they are others than before.

        Keys that cannot be read are ignored, and logged.
        """
        if (for_all, own) == (self.for_all, self.own):
            return False
        self.for_all, self.own = dict(for_all), dict(own)
        self.generation += 1
        self.current = with_settings(self.started_with, self._valid({**for_all, **own}))
        for tell in self._tell:
            tell(self.current)
        return True

    def _valid(self, overrides: Overrides) -> Overrides:
        """Return the keys that exist here, may change at run time, and have an allowed value."""
        found = {}
        for name, raw in overrides.items():
            try:
                key = find_broker_key(name)
                if key.update_mode == READ_ONLY:
                    raise ConfigError(f"{name} is read-only: set it in the broker's file, and start it again")
                key.parse(raw)
            except ConfigError as error:
                logger.error("a key that was set for this broker at run time is ignored: %s", error)
            else:
                found[name] = raw
        return found
