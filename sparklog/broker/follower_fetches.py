"""A leader's state for its followers: fetch sessions, long polls, and the replication rate.

It is separate from the consumers' state: consumers cannot evict a follower's session, and an append that is not
committed yet wakes followers only.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from sparklog.base.errors import InconsistentTopicId, NotLeaderOrFollower
from sparklog.base.ids import TopicPartition
from sparklog.broker.fetch_sessions import FetchSessions
from sparklog.replica.manager import Replica, ReplicaManager
from sparklog.replica.throttle import ReplicationThrottle
from sparklog.runtime.purgatory import Purgatory


def find_led(
    replicas: ReplicaManager, name: TopicPartition, *, topic_id: UUID | None, leader_epoch: int | None, follower: int
) -> Replica:
    """Return the replica that a follower asks for, if this broker leads it with that epoch, topic id and follower.

    Raises NotLeaderOrFollower, FencedLeaderEpoch, UnknownLeaderEpoch, InconsistentTopicId, and as `ReplicaManager.get`
    does.
    """
    replica = replicas.get_leader(name)
    replica.partition.check_leader_epoch(leader_epoch)
    if replica.log.topic_id not in (None, topic_id):
        raise InconsistentTopicId(f"{name} is of a topic with another id")
    if follower not in replica.partition.followers:
        raise NotLeaderOrFollower(f"{name}: broker {follower} has no replica")
    return replica


class FollowerFetches:
    """The follower state of one broker. `slots` must suffice for all fetchers of all other brokers."""

    def __init__(self, slots: int, new_session_id: Callable[[], int], rate: Callable[[], int]) -> None:
        """rate: returns the current leader.replication.throttled.rate."""
        self.sessions = FetchSessions(slots, new_session_id)
        self.waiting: Purgatory[TopicPartition] = Purgatory()
        """Waiting fetches, by the partitions whose log end, high watermark or leadership they wait for."""
        self.throttle = ReplicationThrottle(rate)
