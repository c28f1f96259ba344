"""Checks high watermarks while a simulated cluster runs.

moved back     a leader's high watermark has fallen, in the same process and the same leader epoch
beyond a log   a broker that may be elected, according to the store, lacks committed records. A killed broker does not
               count until the controller has registered it again: it may have lost unflushed records, and is not
               elected before it has caught up
"""

from __future__ import annotations

import asyncio
import json
from uuid import UUID

from sparklog.base.ids import TopicPartition
from sparklog.cluster.broker_epochs import BROKER_EPOCHS
from sparklog.testing.sim_cluster import SimCluster, SimNode

EVERY_S = 0.05
Life = tuple[TopicPartition, UUID | None, str, int, int]
"""The partition, its topic's id, the leader, the start of the leader's process, and the leader epoch."""


async def watch_high_watermarks(cluster: SimCluster) -> None:
    """Report anomalies until cancelled."""
    shown: dict[Life, int] = {}
    while True:
        _check(cluster, shown)
        await asyncio.sleep(EVERY_S)


def _check(cluster: SimCluster, shown: dict[Life, int]) -> None:
    states, epochs = cluster.states(), _epochs(cluster)
    for leader in cluster.nodes.values():
        if not leader.is_running or leader.broker is None:
            continue
        for replica in leader.broker.replicas():
            partition = replica.partition
            if not partition.is_leader:
                continue
            name, committed = partition.name, partition.high_watermark
            life = name, replica.log.topic_id, leader.name, leader.starts, partition.led_since
            if shown.get(life, 0) > committed:
                cluster.report("high watermark", f"{name}: at {leader.name} it moved from {shown[life]} to {committed}")
            shown[life] = committed
            state = states.get(name, {})
            if (state.get("leader"), state.get("leader_epoch")) != (leader.broker_id, partition.leader_epoch):
                continue
            for broker_id in state["isr"]:
                end = _log_end(cluster.nodes[broker_id], name, epochs.get(broker_id))
                if end is not None and end < committed:
                    text = f"{name}: {committed}, and the log of {broker_id}, which is in sync, ends at {end}"
                    cluster.report("high watermark", text)


def _epochs(cluster: SimCluster) -> dict[int, int]:
    """Return the epochs of the registered brokers, as the controller has written them."""
    node = cluster.tree.find(BROKER_EPOCHS)
    found = json.loads(node.data)["epochs"] if node else {}
    return {int(broker_id): epoch for broker_id, epoch in found.items()}


def _log_end(node: SimNode, name: TopicPartition, epoch: int | None) -> int | None:
    """Return the log end offset; None if the log cannot be seen or does not count."""
    if not node.is_running or node.broker is None or not hasattr(node.broker, "services"):
        return None
    if node.broker.services.registration.epoch != epoch:
        return None
    replica = node.broker.services.replicas.find(name)
    return replica.log.log_end_offset if replica else None
