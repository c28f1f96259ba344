"""A leader's state for its followers: fetch sessions, long polls, and the replication rate.

It is separate from the consumers' state: consumers cannot evict a follower's session, and an append that is not
committed yet wakes followers only.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from itertools import count
from typing import NamedTuple
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


class WaitingFetch(NamedTuple):
    """A fetch that waits for changes of partitions."""

    names: Container[TopicPartition]
    changed: list[TopicPartition]
    """The partitions that have changed since the fetch looked at them."""


class FollowerFetches:
    """The follower state of one broker. `slots` must suffice for all fetchers of all other brokers."""

    def __init__(
        self, slots: int, new_session_id: Callable[[], int], rate: Callable[[], int], version: Callable[[], int]
    ) -> None:
        """rate: returns the current leader.replication.throttled.rate.

        version: returns another number after changes of logs for which `changed` is not called
        """
        self.sessions = FetchSessions(slots, new_session_id, tracks_changes=True, version=version)
        self._waits: dict[int, WaitingFetch] = {}
        """The waiting fetches by number, one for each fetcher of the followers; the one that waits longest is first."""
        self._numbers = count()
        self._purgatory: Purgatory[int] = Purgatory()
        self.throttle = ReplicationThrottle(rate)

    async def wait(self, fetch: WaitingFetch, is_enough: Callable[[], bool], timeout_ms: int) -> None:
        """Wait until there is enough for an answer. `is_enough` is called after each change of a partition."""
        number = next(self._numbers)
        self._waits[number] = fetch
        try:
            await self._purgatory.watch((number,), lambda _: is_enough() or None, timeout_ms)
        finally:
            del self._waits[number]

    def changed(self, name: TopicPartition) -> None:
        """Wake the fetches that wait for a partition's log end, high watermark or leadership."""
        self.sessions.changed(name)
        for number, fetch in tuple(self._waits.items()):
            if name in fetch.names:
                fetch.changed.append(name)
                self._purgatory.check(number)

    def replicas_changed(self, name: TopicPartition) -> None:
        """Let the next fetches look at a partition, whose replicas or ISR may have changed."""
        self.sessions.changed(name)

    def release_all(self) -> None:
        """Let no fetch wait: the broker stops."""
        self._purgatory.release_all()
