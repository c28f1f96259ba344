"""Configuration nodes in the cluster store, as Kafka has them in ZooKeeper.

    /config/topics/T, /config/brokers/N (topics.py)
    /config/users/U, /config/users/U/clients/C, /config/clients/C, /config/ips/A
    /config/client-metrics/S
        {"version": 1, "config": {"producer_byte_rate": "1048576"}}
    /config/changes/config_change_*     {"version": 2, "entity_path": "users/U"}: this configuration has changed

A user's node has both SCRAM credentials and quotas. Names are escaped as in a URL (kafka's Sanitizer).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from urllib.parse import quote, unquote

from sparklog.base.errors import BadVersion, NoNode, StoreError
from sparklog.cluster.store import Create, Operation, Set, Store, encode_json, ensure_path

USERS, CLIENTS, IPS = "/config/users", "/config/clients", "/config/ips"
CLIENT_METRICS = "/config/client-metrics"
CONFIG_CHANGES = "/config/changes"
_ROOT = "/config/"
DEFAULT = "<default>"
"""Stands for a name: the default of all entities without a configuration of their own."""
ATTEMPTS = 100
"""Maximum number of attempts to change a node that other writers change too."""

Config = dict[str, str]


def escape(name: str) -> str:
    """Return a name, escaped as part of a path."""
    escaped = quote(name, safe="").replace("~", "%7E")
    return escaped.replace(".", "%2E") if escaped in (".", "..") else escaped  # not allowed as names in a path


def unescape(part: str) -> str:
    """Return the name that `escape` has escaped."""
    return unquote(part)


def read_config(store: Store, path: str) -> Config:
    """Return the configuration of a node; empty without a node. Raises StoreError if the node holds none."""
    try:
        return decode_config(path, store.get(path).data)
    except NoNode:
        return {}


def change_config(store: Store, path: str, change: Callable[[Config], Mapping[str, str]], *also: Operation) -> Config:
    """Change the configuration of a node by compare and set, and return the new one. also: operations of the same write

    Raises NoNode, or StoreError if other writers change it ATTEMPTS times meanwhile.
    """
    for _ in range(ATTEMPTS):
        node = store.get(path)
        changed = dict(change(decode_config(path, node.data)))
        with suppress(BadVersion):
            store.multi((Set(path, encode_config(changed), node.version), *also))
            return changed
    raise StoreError(f"{path} was changed by others {ATTEMPTS} times")


def put_config(store: Store, entity_path: str, change: Callable[[Config], Mapping[str, str]]) -> Config:
    """Create or change the configuration of a node, notify the controller, and return the new configuration.

    entity_path: as in `notice_of`. Raises StoreError as `change_config` does.
    """
    path = _ROOT + entity_path
    ensure_path(store, path)
    return change_config(store, path, change, notice_of(entity_path))


def notice_of(entity_path: str) -> Operation:
    """Return the write that notifies the controller of a changed configuration, to be done with the change.

    Written later, it would be lost with its broker, and another attempt may find nothing to change. entity_path: the
    configuration's path without /config/
    """
    data = encode_json({"version": 2, "entity_path": entity_path})
    return Create(f"{CONFIG_CHANGES}/config_change_", data, sequential=True)


def encode_config(config: Mapping[str, str]) -> bytes:
    """Return the content of a configuration's node."""
    return encode_json({"version": 1, "config": dict(config)})


def decode_config(path: str, data: bytes) -> Config:
    """Return the configuration in a node's data. Raises StoreError if it holds none. path: for the error"""
    if not data:  # the node is new, or only the parent of others
        return {}
    try:
        return dict(json.loads(data)["config"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} in the cluster store does not hold a configuration: {error!r}") from error
