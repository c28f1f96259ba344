"""The current configuration of a broker (kafka.server.DynamicBrokerConfig).

A broker starts with the keys of its file, environment and arguments. The cluster store overrides keys that may change
at run time: with values for all brokers, and above these with values for this broker. Readers read `current` each time,
or subscribe to changes.
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
    """The owner of one broker's current configuration. One thread at a time changes it; any thread reads it."""

    def __init__(self, started_with: BrokerConfig) -> None:
        self.started_with = started_with
        self.current = started_with
        self.for_all: Overrides = {}
        """The keys that were set at run time for all brokers."""
        self.own: Overrides = {}
        """The keys that were set at run time for this broker."""
        self.generation = 0
        """Incremented with each change."""
        self._listeners: list[ConfigListener] = []

    def subscribe(self, listener: ConfigListener) -> None:
        """Call `listener` with the present configuration now, and with each later one."""
        self._listeners.append(listener)
        listener(self.current)

    def set_overrides(self, for_all: Overrides, own: Overrides) -> bool:
        """Replace all keys that were set at run time; return whether they have changed.

        Invalid keys are logged and ignored.
        """
        if (for_all, own) == (self.for_all, self.own):
            return False
        self.for_all, self.own = dict(for_all), dict(own)
        self.generation += 1
        self.current = with_settings(self.started_with, self._valid_overrides({**for_all, **own}))
        for listener in self._listeners:
            listener(self.current)
        return True

    def _valid_overrides(self, overrides: Overrides) -> Overrides:
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
