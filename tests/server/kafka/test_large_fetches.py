"""Fetches of thousands of partitions: other requests are served meanwhile."""

from __future__ import annotations

import pytest

from sparklog.testing import RunningBroker
from support.brokers.most_calls import most_calls
from support.kafka.connection import Wire

FETCH = 1
PARTITIONS = 9_900
MOST_CALLS = 75_000
"""Of one turn of the event loop: less than to make or to pack as many results at once."""


@pytest.mark.slow
@pytest.mark.parametrize("version", [4, 11, 12, 17])
@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_partitions_that_are_missing(kafka_broker: RunningBroker, wire: Wire, version: int, session_epoch: int) -> None:
    part = {"current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1, "log_start_offset": -1}
    named = [{"partition": number, "partition_max_bytes": 0} | part for number in range(PARTITIONS)]
    request = {
        "replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 1000, "isolation_level": 0, "session_id": 0,
        "session_epoch": session_epoch, "topics": [{"topic": "nobody's", "topic_id": None, "partitions": named}],
        "forgotten_topics_data": [], "rack_id": "", "cluster_id": None, "replica_state": {},
    }  # fmt: skip
    with most_calls(kafka_broker) as most:
        answer = wire.send(FETCH, version, **request)
    assert [part.partition_index for part in answer.responses[0].partitions] == [*range(PARTITIONS)]
    assert {part.error_code.name for part in answer.responses[0].partitions} <= {
        "unknown_topic_or_partition", "unknown_topic_id",
    }  # fmt: skip
    assert most.calls < MOST_CALLS, most
