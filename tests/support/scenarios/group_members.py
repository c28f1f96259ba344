"""Members of a group in a scenario. Their options are those of the command with which they join."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field

from sparklog.base.ids import TopicPartition
from sparklog.group.consumer_member import JOIN_EPOCH
from sparklog.group.requests import ConsumerGroupHeartbeat
from sparklog.testing.scenario import duration_ms


@dataclass
class Client:
    """A member of the classic protocol."""

    name: str
    _: KW_ONLY
    static: str | None = None
    session: str = "10s"
    rebalance: str = "60s"
    protocols: str = "range"
    topics: str = "t"
    vanish: str = "no"
    member_id: str = field(default="", init=False)
    generation: int = field(default=-1, init=False)
    members: tuple[str, ...] = field(default=(), init=False)
    """Of its generation, where it is the leader."""


@dataclass
class Consumer:
    """A member of the new protocol; its name is its id."""

    group_id: str
    name: str
    _: KW_ONLY
    static: str | None = None
    topics: str = ""
    regex: str | None = None
    rebalance: str = "60s"
    epoch: int = field(default=JOIN_EPOCH, init=False)
    has: set[TopicPartition] = field(default_factory=set, init=False)
    told: set[TopicPartition] = field(default_factory=set, init=False)
    """What it is to have."""

    def request(self, epoch: int) -> ConsumerGroupHeartbeat:
        """All that it says of itself when it joins, and later only what it has."""
        joins, topics = epoch == JOIN_EPOCH, self.topics or ("" if self.regex else "t")
        return ConsumerGroupHeartbeat(
            group_id=self.group_id,
            member_id=self.name,
            member_epoch=epoch,
            group_instance_id=self.static,
            client_id=self.name,
            client_host="/127.0.0.1",
            rebalance_timeout_ms=duration_ms(self.rebalance) if joins else -1,
            subscribed_topic_names=[name for name in topics.split(",") if name] if joins else None,
            subscribed_topic_regex=self.regex if joins else None,
            owned_partitions=sorted(self.has),
        )
