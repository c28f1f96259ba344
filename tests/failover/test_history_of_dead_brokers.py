"""The cluster's history tells of brokers that were killed, also of the one that kept it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparklog.base.errors import SparklogError
from sparklog.base.ids import TopicPartition
from sparklog.client import Consumer
from support.processes.cluster import ClusterProcesses

pytestmark = pytest.mark.slow
HISTORY = "__cluster_history"


def noted(cluster: ClusterProcesses) -> list[dict[str, Any]]:
    partition = TopicPartition(HISTORY, 0)
    try:
        with Consumer(
            bootstrap_servers=cluster.grpc, auto_offset_reset="earliest", default_api_timeout_ms=5_000
        ) as consumer:
            consumer.assign([partition])
            end = consumer.end_offsets([partition])[partition]
            found = []
            for _ in range(20):
                found += consumer.poll(500)
                if consumer.position(partition) >= end:
                    break
            return [json.loads(record.value or b"") for record in found]
    except SparklogError:
        return []


def test_the_death_of_whoever_keeps_the_history_is_in_it(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, cluster_history_enable="true") as cluster:
        cluster.wait_for_isr(3, HISTORY)
        keeper = cluster.leader(HISTORY)
        cluster.brokers[keeper].kill()

        def told() -> list[dict[str, Any]] | None:
            found = noted(cluster)
            is_there = any((each["kind"], each.get("broker")) == ("broker down", keeper) for each in found)
            elected = [each for each in found if each["kind"] == "leader elected" and each["topic"] == HISTORY]
            was_replaced = any(each["previous_leader"] == keeper for each in elected)
            is_newest = elected and elected[-1]["leader"] == cluster.leader(HISTORY)
            return elected if is_there and was_replaced and is_newest else None

        elected = cluster.wait(told, f"the history tells that {keeper} has died")
        assert elected[-1]["leader"] != keeper
        assert not any(each["unclean"] for each in elected)
        for broker_id in sorted(cluster.brokers.keys() - {keeper}):
            cluster.brokers[broker_id].stop()
