"""Configuration nodes of users, clients and addresses in the cluster store, as Kafka has them in ZooKeeper.

    /config/users/U, /config/users/U/clients/C, /config/clients/C, /config/ips/A
        {"version": 1, "config": {"producer_byte_rate": "1048576"}}
    /config/changes/config_change_*     {"version": 2, "entity_path": "users/U"}: this configuration has changed

A user's node has both SCRAM credentials and quotas. Names are escaped as in a URL (kafka's Sanitizer).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import quote, unquote

from sparklog.base.errors import BadVersion, NodeExists, NoNode, StoreError
from sparklog.cluster.store import Store, ensure_path

USERS, CLIENTS, IPS = "/config/users", "/config/clients", "/config/ips"
CONFIG_CHANGES = "/config/changes"
ATTEMPTS = 100
"""Attempts to change a node that others change too."""

Config = dict[str, str]


def escape(name: str) -> str:
    """Return a name as part of a path."""
    escaped = quote(name, safe="").replace("~", "%7E")
    return escaped.replace(".", "%2E") if escaped in (".", "..") else escaped  # no names in a path


def unescape(part: str) -> str:
    """Return the name that is part of a path."""
    return unquote(part)


def read_config(store: Store, path: str) -> Config:
    """Return the configuration of a node; empty if there is no node. Raises StoreError if it cannot be read."""
    try:
        return _decode(path, store.get(path).data)
    except NoNode:
        return {}


def change_config(store: Store, path: str, change: Callable[[Config], Config]) -> None:
    """Change the configuration of a node by compare and set, and create the node if it does not exist.

    Raises StoreError if other writers are first ATTEMPTS times.
    """
    for _ in range(ATTEMPTS):
        with suppress(BadVersion, NoNode, NodeExists):
            try:
                node = store.get(path)
            except NoNode:
                ensure_path(store, path.rpartition("/")[0])
                store.create(path, _encode(change({})))
            else:
                store.set(path, _encode(change(_decode(path, node.data))), node.version)
            return
    raise StoreError(f"{path} was changed by others {ATTEMPTS} times")


def notify(store: Store, entity_path: str) -> None:
    """Tell the controller that a configuration has changed. entity_path: its path, without /config/"""
    data = json.dumps({"version": 2, "entity_path": entity_path}, separators=(",", ":")).encode()
    store.create(f"{CONFIG_CHANGES}/config_change_", data, sequential=True)


def _encode(config: Config) -> bytes:
    return json.dumps({"version": 1, "config": config}, separators=(",", ":")).encode()


def _decode(path: str, data: bytes) -> Config:
    if not data:  # a node that is only the parent of others
        return {}
    try:
        return dict(json.loads(data)["config"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} in the cluster store does not hold a configuration: {error!r}") from error
