"""The live brokers in the cluster store, at the path and in the JSON of Kafka in ZooKeeper (BrokerIdZNode).

    /brokers/ids/N   {"version": 5, "host": …, "port": …, "jmx_port": -1, "timestamp": "1700000000000", "rack": "r1",
                      "endpoints": ["PLAINTEXT://host:9092", "GRPC://host:9094"], "features": {},
                      "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT", "GRPC": "PLAINTEXT"},
                      "sparklog": {"version": "…", "directory_id": "…"}}

The node is ephemeral: a broker is alive as long as its session. Its broker epoch is `Node.created`, which shows a
restart even between two reads. `host` and `port` are those of its first PLAINTEXT listener, for tools that do not read
endpoints.

A broker that was killed and starts again finds its old node until its old session expires. It replaces the node at
once: the node has the id of the broker's log directory, and the registering broker holds the lock on that directory. A
node with another log directory means that two brokers have the same id.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from sparklog.base.addresses import Address
from sparklog.base.errors import (
    BadVersion,
    ConfigError,
    ConnectionLoss,
    NodeExists,
    NoNode,
    SessionExpired,
    StoreError,
)
from sparklog.cluster.model import BrokerInfo
from sparklog.cluster.store import NO_OWNER, Create, Delete, Node, Store, Watch, encode_json, ensure_path, find_node

BROKER_IDS = "/brokers/ids"
DISK_EVENTS = "/log_dir_event_notification"
GRPC = "GRPC"
PLAINTEXT = "PLAINTEXT"
ATTEMPTS = 20
"""Maximum number of attempts to create the node; each fails if another broker of the same id is first."""
RETRY_S = 0.5
BY_NAME: Mapping[str, str] = MappingProxyType({})
"""No mapping: the name of a listener is its protocol."""


def broker_path(broker_id: int) -> str:
    """Return the path of a broker's node."""
    return f"{BROKER_IDS}/{broker_id}"


def encode_broker(
    info: BrokerInfo, directory_id: str, *, time_ms: int, protocols: Mapping[str, str] = BY_NAME
) -> bytes:
    """Return the data of a broker's node.

    protocols: security protocols by listener; a listener without an entry has its name as its protocol
    """
    grpc = Address.parse(info.grpc_address, "grpc.advertised.listener")
    listeners = {**info.listeners, GRPC: grpc}
    protocol_of = {name: protocols.get(name, PLAINTEXT if name == GRPC else name) for name in listeners}
    plain = [address for name, address in info.listeners.items() if protocol_of[name] == PLAINTEXT]
    value = {
        "version": 5,
        "host": plain[0].host if plain else None,
        "port": plain[0].port if plain else -1,
        "jmx_port": -1,
        "timestamp": str(time_ms),
        "endpoints": [f"{name}://{address}" for name, address in listeners.items()],
        "listener_security_protocol_map": protocol_of,
        **({"rack": info.rack} if info.rack else {}),
        "features": {},
        "sparklog": {"version": info.version, "directory_id": directory_id},
    }
    return encode_json(value)


def decode_broker(broker_id: int, node: Node) -> BrokerInfo:
    """Return the broker that a node describes; its epoch is the node's `created`.

    The gRPC address is empty if the broker has no such listener.
    """
    value = _decode(node)
    endpoints = dict(endpoint.split("://", 1) for endpoint in value["endpoints"])
    return BrokerInfo(
        broker_id=broker_id,
        grpc_address=endpoints.pop(GRPC, ""),
        listeners={name: Address.parse(address, name) for name, address in endpoints.items()},
        rack=value.get("rack") or "",
        version=value.get("sparklog", {}).get("version", ""),
        epoch=node.created,
    )


def load(store: Store, watch: Watch | None = None) -> dict[int, BrokerInfo]:
    """Return the live brokers by id; `watch` is called when a broker comes, goes or registers again."""
    ensure_path(store, BROKER_IDS)
    found: dict[int, BrokerInfo] = {}
    for broker_id in sorted(map(int, store.children(BROKER_IDS, watch))):
        try:
            found[broker_id] = decode_broker(broker_id, store.get(broker_path(broker_id)))
        except NoNode:
            continue  # the broker is gone by now, and `watch` is called
    return found


def register(
    store: Store, info: BrokerInfo, directory_id: str, *, time_ms: int, protocols: Mapping[str, str] = BY_NAME
) -> int:
    """Register this broker as alive and return its broker epoch, also if the session has already registered it.

    Raises NodeExists if another broker has the id.
    """
    ensure_path(store, BROKER_IDS)
    path = broker_path(info.broker_id)
    node = Create(path, encode_broker(info, directory_id, time_ms=time_ms, protocols=protocols), ephemeral=True)
    for attempt in range(ATTEMPTS + 1):
        before = find_node(store, path)
        if before and before.owner == store.session_id:
            return before.created
        if attempt == ATTEMPTS:
            break
        deletion: tuple[Delete, ...] = ()
        if before:
            if before.owner != NO_OWNER and _directory_id(before) != directory_id:
                raise NodeExists(f"broker {info.broker_id} is alive, with {', '.join(_decode(before)['endpoints'])}")
            deletion = (Delete(path, before.version),)
        with suppress(NodeExists, NoNode, BadVersion):  # another broker, or the end of a session, was first
            store.multi((*deletion, node))
    raise StoreError(f"{path} has been changed by others {ATTEMPTS} times")


async def register_when_free(
    store: Store,
    info: BrokerInfo,
    directory_id: str,
    *,
    time_ms: int,
    timeout_ms: int,
    protocols: Mapping[str, str] = BY_NAME,
) -> int:
    """Register as `register` does, and return the broker epoch.

    Waits until another broker of the same id is gone, and while the store cannot be reached. Raises ConfigError or
    StoreError after `timeout_ms`.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    while True:
        try:
            return await asyncio.to_thread(register, store, info, directory_id, time_ms=time_ms, protocols=protocols)
        except NodeExists as error:
            if loop.time() >= deadline:
                raise ConfigError(f"broker.id = {info.broker_id}: {error}") from error
        except (ConnectionLoss, SessionExpired):
            if loop.time() >= deadline:
                raise
        await asyncio.sleep(min(RETRY_S, timeout_ms / 1000))


def report_failed_disk(store: Store, broker_id: int) -> None:
    """Write a notice: the controller then asks the broker which of its replicas still work."""
    ensure_path(store, DISK_EVENTS)
    data = encode_json({"version": 1, "broker": broker_id, "event": 1})
    store.create(f"{DISK_EVENTS}/log_dir_event_", data, sequential=True)


def _directory_id(node: Node) -> str | None:
    found = _decode(node).get("sparklog", {}).get("directory_id")
    return str(found) if found else None


def _decode(node: Node) -> dict[str, Any]:
    return json.loads(node.data)  # type: ignore[no-any-return]
