"""The ids of the cluster and of its store.

/cluster/id         {"version": "1", "id": "…"}       22 characters of base64, chosen once: as Kafka's in ZooKeeper
/cluster/store      {"version": "1", "id": "…"}       chosen anew for each store. A store that replaces a lost one gets
                                                      the cluster's id from the brokers, and a new store id
"""

from __future__ import annotations

import json
from contextlib import suppress

from sparklog.base.errors import NodeExists, NoNode
from sparklog.cluster.store import Store, Watch, ensure_path

CLUSTER_ID = "/cluster/id"
STORE_ID = "/cluster/store"
SURE_S = 1.0
"""Seconds for which a topic must be missing before it counts as deleted, if the store still has its id then: longer
than a tool takes to delete all nodes of a store, one after the other."""


def find_or_create_cluster_id(store: Store, candidate: str) -> str:
    """Return the cluster's id. Set it to `candidate` if there is none yet."""
    return _find_or_create(store, CLUSTER_ID, candidate)


def find_or_create_store_id(store: Store, candidate: str) -> str:
    """Return the store's id. Set it to `candidate` if there is none yet."""
    return _find_or_create(store, STORE_ID, candidate)


def find_store_id(store: Store, watch: Watch | None = None) -> str | None:
    """Return the store's id; None if it has none. `watch` is called when that changes."""
    if not store.exists(STORE_ID, watch):
        return None
    with suppress(NoNode):  # the node was just deleted
        return str(json.loads(store.get(STORE_ID).data)["id"])
    return None


def _find_or_create(store: Store, path: str, candidate: str) -> str:
    ensure_path(store, "/cluster")
    try:
        store.create(path, json.dumps({"version": "1", "id": candidate}).encode())
    except NodeExists:
        return str(json.loads(store.get(path).data)["id"])
    return candidate
