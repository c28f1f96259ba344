"""Replication throttles: the rates, and the replicas that they apply to."""

from __future__ import annotations

import pytest

from sparklog.base.errors import InvalidConfig
from sparklog.base.topic_config import TopicConfig
from sparklog.replica.throttle import ReplicationThrottle, is_listed

KEY = "leader.replication.throttled.replicas"


@pytest.mark.parametrize(
    ("listed", "replicas"), [("", []), ("*", [(0, 1), (1, 2), (7, 9)]), ("0:1, 1:2", [(0, 1), (1, 2)])]
)
def test_replicas_are_named_by_partition_and_broker(listed: str, replicas: list[tuple[int, int]]) -> None:
    config = TopicConfig.parse({KEY: listed}, TopicConfig())
    named = [
        each for each in [(0, 1), (1, 2), (7, 9)] if is_listed(config.leader_replication_throttled_replicas, *each)
    ]
    assert named == replicas


@pytest.mark.parametrize("listed", ["0", "a:b", "0:1:2", "-1:0", "*,0:1"])
def test_a_list_of_another_form_is_refused(listed: str) -> None:
    with pytest.raises(InvalidConfig, match="PARTITION:BROKER"):
        TopicConfig.parse({KEY: listed}, TopicConfig())


def test_sent_bytes_are_paid_off_at_the_rate() -> None:
    rate = 100
    throttle = ReplicationThrottle(lambda: rate)
    assert throttle.pause(10.0) == 0
    throttle.sent(500, 10.0)
    assert throttle.pause(10.0) == 5.0
    assert throttle.pause(13.0) == 2.0
    rate = 200
    assert throttle.pause(13.5) == 0.5
    assert throttle.pause(14.1) == 0
