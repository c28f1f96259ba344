"""What is decided in a cluster can be read in its topic `__cluster_history`."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from neighbours import PATIENCE_MS, Neighbourhood

from sparklog.base.errors import UnknownTopicOrPartition
from sparklog.base.ids import TopicPartition
from sparklog.cluster.history import HISTORY_TOPIC
from sparklog.records.batch import iterate_headers
from sparklog.records.records import iterate_records

T0 = TopicPartition("t", 0)


async def noted(cluster: Neighbourhood) -> list[dict[str, Any]]:
    """What the first broker has taken down."""
    try:
        data = await cluster.read(1, TopicPartition(HISTORY_TOPIC, 0))
    except UnknownTopicOrPartition:
        return []
    positions = [position for position, _ in iterate_headers(data)]
    return [json.loads(record.value or b"") for position in positions for record in iterate_records(data, position)]


async def test_elections_and_brokers_that_come_and_go_are_in_the_history() -> None:
    cluster = Neighbourhood(cluster_history_enable="true")
    await cluster.start(1, 2)
    metadata = cluster.brokers[1].services.metadata
    assert await metadata.wait_until(lambda: 2 in metadata.brokers, PATIENCE_MS)
    await cluster.create("t", [[2, 1]])
    await cluster.stop(2)
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE_MS / 1000):
        while not any(each["kind"] == "brokers changed" and each["gone"] == [2] for each in found):
            await asyncio.sleep(0.01)
            found = await noted(cluster)
    await cluster.stop_all()

    elections = [each for each in found if each["kind"] == "leader elected" and each.get("topic") == "t"]
    assert found[0]["kind"] == "controller elected"
    assert [(each["leader"], each["isr"], each["reason"]) for each in elections] == [
        (2, [2, 1], "new"),
        (1, [1], "controlled shutdown"),
    ]
    assert elections[1]["leader_epoch"] > elections[0]["leader_epoch"]
    assert all(each["broker"] == 1 and each["time_ms"] > 0 for each in found)


async def test_a_cluster_that_is_not_asked_to_keeps_no_history() -> None:
    cluster = Neighbourhood()
    await cluster.start(1)
    await cluster.create("t", [[1]])
    assert HISTORY_TOPIC not in cluster.brokers[1].services.metadata
    await cluster.stop_all()
