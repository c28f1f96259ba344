"""A check of the high watermarks and last stable offsets while a simulated cluster runs. It reports two findings.

moved back     A leader's high watermark or last stable offset fell, within one process and while that broker stayed the
               leader.
beyond a log   A leader's high watermark is above the log end of a broker in the stored ISR, which may be elected. A
               restarted broker does not count until the controller has published its new broker epoch: it may have
               lost unflushed records, and the controller does not elect it before it has caught up.
"""

from __future__ import annotations

import asyncio
import json
from uuid import UUID

from sparklog.base.ids import TopicPartition
from sparklog.cluster.broker_epochs import BROKER_EPOCHS
from sparklog.testing.sim.cluster import SimCluster
from sparklog.testing.sim.node import SimNode

EVERY_S = 0.05
Life = tuple[TopicPartition, UUID | None, str, int, int]
"""A partition, its topic id, its leader, the number of the process's start, and the first epoch of its leadership."""


async def watch_high_watermarks(cluster: SimCluster) -> None:
    """Check all leaders every EVERY_S seconds, and report findings to the cluster. Never returns."""
    shown: dict[Life, tuple[int, int]] = {}
    while True:
        _check(cluster, shown)
        await asyncio.sleep(EVERY_S)


def _check(cluster: SimCluster, shown: dict[Life, tuple[int, int]]) -> None:
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
            stable = replica.last_stable_offset
            before = shown.get(life, (0, 0))
            if before[0] > committed:
                cluster.report("high watermark", f"{name}: on {leader.name} it fell from {before[0]} to {committed}")
            if before[1] > stable:
                cluster.report("last stable offset", f"{name}: on {leader.name} it fell from {before[1]} to {stable}")
            shown[life] = committed, stable
            state = states.get(name, {})
            if (state.get("leader"), state.get("leader_epoch")) != (leader.broker_id, partition.leader_epoch):
                continue
            for broker_id in state["isr"]:
                end = _log_end(cluster.nodes[broker_id], name, epochs.get(broker_id))
                if end is not None and end < committed:
                    text = f"{name}: it is {committed}, but the log of in-sync broker {broker_id} ends at {end}"
                    cluster.report("high watermark", text)


def _epochs(cluster: SimCluster) -> dict[int, int]:
    """Return the last broker epochs that the controller has written to the store, by broker id."""
    node = cluster.tree.find(BROKER_EPOCHS)
    found = json.loads(node.data)["epochs"] if node else {}
    return {int(broker_id): epoch for broker_id, epoch in found.items()}


def _log_end(node: SimNode, name: TopicPartition, epoch: int | None) -> int | None:
    """Return the log end offset of a replica, or None if it cannot be seen or does not count."""
    if not node.is_running or node.broker is None or not node.broker.has_services:
        return None
    if node.broker.services.registration.epoch != epoch:
        return None
    replica = node.broker.services.replicas.find(name)
    return replica.log.log_end_offset if replica else None
