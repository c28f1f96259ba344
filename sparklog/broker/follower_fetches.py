"""What a leader keeps for the brokers that copy its logs: their sessions, their long polls, and the rate for them.

Apart from what consumers have: no number of consumers takes a follower's session away, and an append that is not
committed yet wakes followers only.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from sparklog.base.config import BROKER_KEYS, BrokerConfig
from sparklog.base.errors import InconsistentTopicId, NotLeaderOrFollower
from sparklog.base.ids import TopicPartition
from sparklog.broker.fetch_sessions import FetchSessions
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.replica.manager import Replica, ReplicaManager
from sparklog.replica.throttle import Throttle
from sparklog.runtime.purgatory import Purgatory

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"


def throttled_rate(config: BrokerConfig, metadata: MetadataCache, key: str) -> Callable[[], int]:
    """One of the rates as it is now: as it was changed while the broker runs, else as the broker was started with."""
    found = BROKER_KEYS[key]
    started_with: int = getattr(config, found.field)

    def rate() -> int:
        raw = metadata.broker_overrides(config.broker_id).get(key)
        return started_with if raw is None else int(found.parse(raw))

    return rate


def find_led(
    replicas: ReplicaManager, name: TopicPartition, *, topic_id: UUID | None, leader_epoch: int | None, follower: int
) -> Replica:
    """What a follower asks about: led here, in that epoch, of that topic, and followed by that broker.

    Raises NotLeaderOrFollower, FencedLeaderEpoch, UnknownLeaderEpoch, InconsistentTopicId, and as `Replicas.get` does.
    """
    replica = replicas.get_leader(name)
    replica.partition.check_leader_epoch(leader_epoch)
    if replica.log.topic_id not in (None, topic_id):
        raise InconsistentTopicId(f"{name} is of a topic with another id")
    if follower not in replica.partition.followers:
        raise NotLeaderOrFollower(f"{name}: broker {follower} has no replica")
    return replica


class FollowerFetches:
    """One broker's. `slots` must do for all fetchers of all other brokers."""

    def __init__(self, slots: int, new_session_id: Callable[[], int], rate: Callable[[], int]) -> None:
        """rate: leader.replication.throttled.rate, as it is now."""
        self.sessions = FetchSessions(slots, new_session_id)
        self.waiting: Purgatory[TopicPartition] = Purgatory()
        """By the partitions whose log end, high watermark or leadership they wait for."""
        self.throttle = Throttle(rate)
