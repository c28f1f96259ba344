"""A member of the new protocol in a scenario."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparklog.base.ids import TopicPartition
from sparklog.group.consumer_member import JOIN_EPOCH
from sparklog.group.requests import ConsumerGroupHeartbeat
from support.scenarios.group_words import milliseconds


@dataclass
class Consumer:
    """What it knows of itself; its name is its id."""

    group_id: str
    name: str
    options: dict[str, str]
    epoch: int = JOIN_EPOCH
    has: set[TopicPartition] = field(default_factory=set)
    told: set[TopicPartition] = field(default_factory=set)
    """What it is to have."""

    def request(self, epoch: int) -> ConsumerGroupHeartbeat:
        """All that it says of itself when it joins, and later only what it has."""
        joins, topics = epoch == JOIN_EPOCH, self.options.get("topics", "" if "regex" in self.options else "t")
        return ConsumerGroupHeartbeat(
            group_id=self.group_id,
            member_id=self.name,
            member_epoch=epoch,
            group_instance_id=self.options.get("static"),
            client_id=self.name,
            client_host="/127.0.0.1",
            rebalance_timeout_ms=milliseconds(self.options.get("rebalance", "60s")) if joins else -1,
            subscribed_topic_names=[name for name in topics.split(",") if name] if joins else None,
            subscribed_topic_regex=self.options.get("regex") if joins else None,
            owned_partitions=sorted(self.has),
        )
