"""The cluster's id in the cluster store, at the path and in the JSON of Kafka in ZooKeeper.

/cluster/id         {"version": "1", "id": "…"}       22 characters of base64, chosen once
"""

from __future__ import annotations

import json

from sparklog.base.errors import NodeExists
from sparklog.cluster.store import Store, ensure_path

CLUSTER_ID = "/cluster/id"


def find_or_create_cluster_id(store: Store, candidate: str) -> str:
    """Return the cluster's id. If it has none yet, set it to `candidate`."""
    ensure_path(store, "/cluster")
    try:
        store.create(CLUSTER_ID, json.dumps({"version": "1", "id": candidate}).encode())
    except NodeExists:
        return str(json.loads(store.get(CLUSTER_ID).data)["id"])
    return candidate
