"""The cluster's id and its brokers in the cluster store, at the paths and in the JSON that Kafka has in ZooKeeper.

/cluster/id         {"version": "1", "id": "…"}       22 characters of base64, chosen once
/brokers/ids/N      {"version": 5, "host": …, "port": …, "endpoints": ["GRPC://host:port"], "rack": …}
"""

from __future__ import annotations

import json

from sparklog.base.addresses import Address
from sparklog.base.errors import NodeExists
from sparklog.cluster.model import BrokerInfo
from sparklog.cluster.store import Store, ensure_path

CLUSTER_ID = "/cluster/id"
BROKER_IDS = "/brokers/ids"


def find_or_create_cluster_id(store: Store, candidate: str) -> str:
    """The id that the cluster has; `candidate`, from now on, if it has none."""
    ensure_path(store, "/cluster")
    try:
        store.create(CLUSTER_ID, json.dumps({"version": "1", "id": candidate}).encode())
    except NodeExists:
        return str(json.loads(store.get(CLUSTER_ID).data)["id"])
    return candidate


def register_broker(store: Store, info: BrokerInfo) -> None:
    """Tell the cluster that this broker is there."""
    address = Address.parse(info.grpc_address, "grpc.advertised.listener")
    data = {
        "version": 5,
        "host": address.host,
        "port": address.port,
        "endpoints": [
            f"GRPC://{info.grpc_address}",
            *(f"{name}://{address}" for name, address in info.listeners.items()),
        ],
        "rack": info.rack,
    }
    path = f"{BROKER_IDS}/{info.broker_id}"
    ensure_path(store, path)
    store.set(path, json.dumps(data).encode())
