"""Subscriptions to the metrics of clients in the cluster store, at `/config/client-metrics/NAME` (`config_nodes`).

A subscription without keys does not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from sparklog.base.errors import NoNode, PolicyViolation
from sparklog.cluster.config_nodes import CLIENT_METRICS, Config, escape, put_config, read_config, unescape
from sparklog.cluster.store import Store

ENTITY = "client-metrics"
"""The entity type of subscriptions in notices of changes."""
MAX_SUBSCRIPTIONS = 100
"""Limited because each subscription is matched with every new client."""


class ClientMetricsStore:
    """Reads and writes the subscriptions of a cluster. Calls block, as those of Store do, and need no lock."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def load(self) -> dict[str, Config]:
        """Return the keys of all subscriptions by name, sorted."""
        found = {}
        with suppress(NoNode):
            for part in self._store.children(CLIENT_METRICS):
                if config := read_config(self._store, f"{CLIENT_METRICS}/{part}"):
                    found[unescape(part)] = config
        return dict(sorted(found.items()))

    def change(self, name: str, change: Callable[[Config], Mapping[str, str]], *, validate_only: bool = False) -> None:
        """Replace a subscription's keys by those that `change` derives from the present ones.

        Raises what `change` raises, and PolicyViolation for one subscription too many.
        """
        known = self.load()
        change(known.get(name, {}))  # raises before a node is made
        if name not in known and len(known) >= MAX_SUBSCRIPTIONS:
            raise PolicyViolation(f"there are {len(known)} subscriptions already, the limit is {MAX_SUBSCRIPTIONS}")
        if validate_only:
            return
        put_config(self._store, f"{ENTITY}/{escape(name)}", change)
