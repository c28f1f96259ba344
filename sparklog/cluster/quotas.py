"""Client quotas in the cluster store, at Kafka's paths in ZooKeeper (`config_nodes`).

    user U, client-id C     /config/users/U/clients/C
    user U                  /config/users/U
    client-id C             /config/clients/C
    ip A                    /config/ips/A

The default of a type has ``<default>`` in place of the name.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress

from sparklog.base.errors import NoNode
from sparklog.base.quotas import CLIENT_ID, IP, UNITS, USER, ClientQuota, Entity, QuotaChange, entity
from sparklog.cluster.config_nodes import (
    CLIENTS,
    DEFAULT,
    IPS,
    USERS,
    Config,
    escape,
    put_config,
    read_config,
    unescape,
)
from sparklog.cluster.store import Store

logger = logging.getLogger(__name__)
_ROOT = "/config/"
_OF_USER = "clients"
"""Parent of the clients of one user, in the user's node."""


class QuotaStore:
    """Reads and writes the quotas of a cluster. Calls block, as those of Store do, and need no lock."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def load(self) -> list[ClientQuota]:
        """Return all quotas. Values that are no numbers are left out, with a warning."""
        found = [(entity_, self._values(path)) for entity_, path in self._entities()]
        return [ClientQuota(entity=entity_, values=values) for entity_, values in found if values]

    def change(self, change: QuotaChange) -> None:
        """Set and remove quotas of one entity, by a valid change."""

        def changed(config: Config) -> Config:
            kept = {key: text for key, text in config.items() if key not in change.removed}
            return kept | {key: f"{value:.15g}" for key, value in change.values.items()}

        put_config(self._store, _path(change.entity).removeprefix(_ROOT), changed)

    def _values(self, path: str) -> dict[str, float]:
        values = {}
        for key, text in read_config(self._store, path).items():
            if key in UNITS:
                try:
                    values[key] = float(text)
                except ValueError:
                    logger.warning("%s in the cluster store: %s = %r is no quota", path, key, text)
        return values

    def _entities(self) -> Iterator[tuple[Entity, str]]:
        for type_, root in ((USER, USERS), (CLIENT_ID, CLIENTS), (IP, IPS)):
            for part in self._children(root):
                yield entity({type_: _name(part)}), f"{root}/{part}"
        for user in self._children(USERS):
            for client in self._children(f"{USERS}/{user}/{_OF_USER}"):
                yield entity({USER: _name(user), CLIENT_ID: _name(client)}), f"{USERS}/{user}/{_OF_USER}/{client}"

    def _children(self, path: str) -> list[str]:
        with suppress(NoNode):
            return self._store.children(path)
        return []


def _name(part: str) -> str | None:
    return None if part == DEFAULT else unescape(part)


def _path(entity_: Entity) -> str:
    names = {part.type: DEFAULT if part.name is None else escape(part.name) for part in entity_}
    if IP in names:
        return f"{IPS}/{names[IP]}"
    if USER not in names:
        return f"{CLIENTS}/{names[CLIENT_ID]}"
    return f"{USERS}/{names[USER]}" + (f"/{_OF_USER}/{names[CLIENT_ID]}" if CLIENT_ID in names else "")
