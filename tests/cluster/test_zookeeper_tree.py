"""What an operator sees in ZooKeeper's own shell beside a broker that runs: Kafka's paths, and Kafka's JSON in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparklog.client import Admin
from support.processes.broker import BrokerProcess
from support.processes.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


def test_a_brokers_tree_is_kafkas(tmp_path: Path) -> None:
    server = ZooKeeperServer(tmp_path / "zookeeper")
    server.start()
    broker = BrokerProcess(tmp_path, "broker.id=7", f"zookeeper.connect={server.address}/kafka")
    try:
        broker.start()
        with Admin(bootstrap_servers=broker.grpc) as admin:
            admin.create_topic("orders", partitions=2, configs={"retention.ms": "60000"})
        paths = [line.strip() for line in server.shell("ls -R /kafka").splitlines() if line.startswith("/kafka")]
        asked = (
            "/controller", "/controller_epoch", "/brokers/ids/7", "/brokers/topics/orders", "/config/topics/orders",
            "/brokers/topics/orders/partitions/0/state",
        )  # fmt: skip
        lines = server.shell(*(f"get /kafka{path}" for path in asked)).splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{") or line.isdigit()]
        shown = dict(zip(asked, found, strict=True))

        assert {f"/kafka/brokers/topics/orders/partitions/{number}/state" for number in (0, 1)} <= set(paths)
        assert {"/kafka/admin/delete_topics", "/kafka/isr_change_notification", "/kafka/config/changes"} <= set(paths)
        assert shown["/controller"]["brokerid"] == 7
        assert shown["/controller_epoch"] == 1
        assert f"PLAINTEXT://{broker.kafka}" in shown["/brokers/ids/7"]["endpoints"]
        assert shown["/brokers/topics/orders"]["partitions"] == {"0": [7], "1": [7]}
        assert shown["/config/topics/orders"] == {"version": 1, "config": {"retention.ms": "60000"}}
        state = shown["/brokers/topics/orders/partitions/0/state"]
        assert state == {"version": 1, "controller_epoch": 1, "leader": 7, "leader_epoch": 0, "isr": [7]}
        broker.stop()
        assert "[]" in server.shell("ls /kafka/brokers/ids")
    finally:
        if broker.is_running:
            broker.kill()
        server.stop()
