"""Apache Kafka's tools show a broker's log directories, and move replicas between them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparklog.client import Admin, Producer
from sparklog.testing import RunningBroker, start_broker
from support.patience import wait_until

TOOLS = "org.apache.kafka.tools"
REASSIGN = f"{TOOLS}.reassign.ReassignPartitionsCommand"
THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"
pytestmark = pytest.mark.slow


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    dirs = (str(tmp_path / "disk1"), str(tmp_path / "disk2"))
    with start_broker(tmp_path, kafka=True, log_dirs=dirs) as running:
        yield running


@pytest.fixture
def tool(kafka_tool: Callable[..., str], broker: RunningBroker) -> Callable[..., str]:
    return lambda name, *arguments: kafka_tool(name, *arguments, "--bootstrap-server", broker.kafka)


def replicas(tool: Callable[..., str], topic: str) -> dict[str, list[dict[str, Any]]]:
    """What kafka-log-dirs.sh says, by log directory."""
    printed = tool(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", topic)
    dirs = json.loads(printed.splitlines()[-1])["brokers"][0]["logDirs"]
    return {each["logDir"]: each["partitions"] for each in dirs}


def test_a_plan_with_log_dirs_is_executed_and_verified(
    tool: Callable[..., str], broker: RunningBroker, tmp_path: Path
) -> None:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic("moved", partitions=2)
        admin.alter_broker_configs(0, set={THROTTLE: "100000"})
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(300):
            producer.send("moved", b"%d" % number + bytes(10_000), partition=number % 2)
    before = replicas(tool, "moved")
    [home] = [path for path, parts in before.items() if any(part["partition"] == "moved-0" for part in parts)]
    [target] = before.keys() - {home}
    plan = tmp_path / "plan.json"
    part = {"topic": "moved", "partition": 0, "replicas": [0], "log_dirs": [target]}
    plan.write_text(json.dumps({"version": 1, "partitions": [part]}))
    file = ("--reassignment-json-file", str(plan))

    executed = tool(REASSIGN, "--execute", *file, "--replica-alter-log-dirs-throttle", "70000")
    assert "The replica-alter-dir throttle limit was set to 70000 B/s" in executed
    assert f"Successfully started moving log directory to {target} for replica moved-0 with broker 0" in executed
    [future] = [each for each in replicas(tool, "moved")[target] if each["partition"] == "moved-0"]
    assert future["isFuture"]
    verified = tool(REASSIGN, "--verify", *file, "--preserve-throttles")
    assert "Reassignment of replica moved-0-0 is still in progress" in verified
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.alter_broker_configs(0, unset=[THROTTLE])

    def is_completed() -> bool:
        nonlocal verified
        verified = tool(REASSIGN, "--verify", *file)
        return "is completed" in verified and "still in progress" not in verified

    wait_until(is_completed, "the replica has moved", tell=lambda: verified)
    assert "Reassignment of replica moved-0-0 completed successfully." in verified
    assert [each["partition"] for each in replicas(tool, "moved")[target] if not each["isFuture"]].count("moved-0") == 1
