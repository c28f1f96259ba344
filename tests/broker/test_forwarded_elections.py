"""Elections that a broker asks the controller for."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import Mock

from sparklog.base.clock import SystemClock
from sparklog.base.errors import ElectionNotNeeded
from sparklog.base.ids import MAX_TOPIC_LENGTH, TopicPartition
from sparklog.broker.apis import elect_leaders
from sparklog.broker.apis.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from sparklog.cluster.messages import UpdateMetadata
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.model import BrokerInfo


class Controllers:
    """The other brokers; they only answer election requests."""

    def __init__(self) -> None:
        self.asked: list[TopicPartition] = []

    async def call(self, _: Any, request: ElectLeadersRequest, **__: Any) -> ElectLeadersResponse:
        self.asked += request.partitions or ()
        return ElectLeadersResponse(errors=dict.fromkeys(request.partitions or (), ElectionNotNeeded("no")))


def test_too_long_topic_names_are_not_sent_with_each_partition() -> None:
    """A client sends a name of 30,000 characters once, for thousands of partitions."""
    longest, too_long = (TopicPartition("n" * length, 0) for length in (MAX_TOPIC_LENGTH, MAX_TOPIC_LENGTH + 1))
    info = BrokerInfo(broker_id=1, grpc_address="b:1", listeners={}, rack="", version="")
    peers, metadata = Controllers(), MetadataCache()
    metadata.update(UpdateMetadata(controller_id=1, controller_epoch=1, broker_epoch=1, brokers=(info,)))

    answered = asyncio.run(
        elect_leaders.handle(
            ElectLeadersRequest(partitions=[too_long, longest]),
            clock=SystemClock(),
            controller=Mock(),
            metadata=metadata,
            peers=peers,
        )
    )

    assert peers.asked == [longest]
    assert {name: error and error.name for name, error in answered.errors.items()} == {
        longest: "ELECTION_NOT_NEEDED",
        too_long: "UNKNOWN_TOPIC_OR_PARTITION",
    }
