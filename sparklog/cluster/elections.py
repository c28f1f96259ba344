"""Election of the controller, at the paths and in the JSON of Kafka in ZooKeeper (kafka.zk.ControllerZNode).

    /controller         {"version": 1, "brokerid": 1, "timestamp": "1700000000000", "sparklog": {"directory_id": "…"}}
                        ephemeral: the broker that creates it is the controller until its session ends
    /controller_epoch   7      grows by one with each election

One transaction writes both. Each write of a controller begins with a check of the version of `/controller_epoch` after
its election, so a deposed controller changes nothing.

A controller that was killed and starts again finds its old node. It is elected again at once: the node has the id of
its log directory, which no other broker has.

Brokers remember the epoch of their last controller, and refuse earlier ones. If the store loses the epoch, it begins
anew, and running brokers refuse the next controllers. Such a controller doubles the epoch and resigns, until the epoch
has passed the lost one (`resign`).
"""

from __future__ import annotations

import json
from contextlib import suppress

from msgspec import Struct

from sparklog.base.errors import BadVersion, NodeExists, NoNode, StoreError
from sparklog.cluster.store import Check, Create, Delete, Node, Operation, Set, Store, Watch, encode_json, find_node

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
NO_CONTROLLER = -1
ATTEMPTS = 20
"""Maximum number of attempts at an election; each fails if another broker is first or a session ends meanwhile."""


class ControllerElection(Struct, frozen=True, kw_only=True):
    """The election of this broker as the controller."""

    epoch: int
    epoch_version: int
    """Version of `/controller_epoch`, which `fence` checks."""

    @property
    def fence(self) -> Check:
        """The first operation of each write of this controller; raises BadVersion once another one is elected."""
        return Check(CONTROLLER_EPOCH, self.epoch_version)


def find_controller(store: Store, watch: Watch | None = None) -> int:
    """Return the controller's broker id, or NO_CONTROLLER; `watch` is called when that changes."""
    if not store.exists(CONTROLLER, watch):
        return NO_CONTROLLER
    try:
        return int(json.loads(store.get(CONTROLLER).data)["brokerid"])
    except NoNode:
        return NO_CONTROLLER  # the node is gone by now, and `watch` is called


def elect(store: Store, broker_id: int, directory_id: str, *, time_ms: int) -> ControllerElection | int:
    """Elect this broker if there is no controller, and return the election; else return the present controller's id.

    Returns the existing election if this session has already been elected. May be called again after ConnectionLoss.
    """
    node = Create(CONTROLLER, _encode(broker_id, directory_id, time_ms), ephemeral=True)
    for _ in range(ATTEMPTS):
        epoch = _get_epoch(store)
        before = find_node(store, CONTROLLER)
        deletion: tuple[Delete, ...] = ()
        if before:
            value = json.loads(before.data)
            if value["brokerid"] != broker_id or value.get("sparklog", {}).get("directory_id") != directory_id:
                return int(value["brokerid"])
            if before.owner == store.session_id:
                elected = _own_election(store, before)
                if elected:
                    return elected
                continue
            deletion = (Delete(CONTROLLER, before.version),)
        with suppress(NodeExists, NoNode, BadVersion):  # another broker, or the end of a session, was first
            number = int(epoch.data) + 1
            store.multi((*deletion, node, Set(CONTROLLER_EPOCH, str(number).encode(), epoch.version)))
            return ControllerElection(epoch=number, epoch_version=epoch.version + 1)
    raise StoreError(f"{CONTROLLER} has been changed by others {ATTEMPTS} times")


def resign(store: Store, elected: ControllerElection, *, has_lost_epoch: bool = False) -> None:
    """Let another broker be elected. Do nothing if another broker has been elected.

    has_lost_epoch: whether brokers remember a later controller epoch than the store; if so, double the store's
    """
    fence: Operation = elected.fence
    if has_lost_epoch:
        fence = Set(CONTROLLER_EPOCH, str(2 * elected.epoch).encode(), elected.epoch_version)
    with suppress(NoNode, BadVersion):
        store.multi((fence, Delete(CONTROLLER)))


def _get_epoch(store: Store) -> Node:
    if not store.exists(CONTROLLER_EPOCH):
        with suppress(NodeExists):
            store.create(CONTROLLER_EPOCH, b"0")
    return store.get(CONTROLLER_EPOCH)


def _own_election(store: Store, own: Node) -> ControllerElection | None:
    """Return the election of this session's node `own`; None if the node is gone by now."""
    epoch = store.get(CONTROLLER_EPOCH)
    now = find_node(store, CONTROLLER)
    if now is None or now.created != own.created:
        return None
    return ControllerElection(epoch=int(epoch.data), epoch_version=epoch.version)


def _encode(broker_id: int, directory_id: str, time_ms: int) -> bytes:
    value = {
        "version": 1,
        "brokerid": broker_id,
        "timestamp": str(time_ms),
        "sparklog": {"directory_id": directory_id},
    }
    return encode_json(value)
