"""Which replica a consumer should read from, and whether it may read here (KIP-392).

Consumers say in which rack they are (client.rack). With replica.selector.class=leader they read from the leader. With
RackAwareReplicaSelector the leader sends those that are in another rack than itself to a live replica in theirs that
has the offset; of several to the one that has most.

Who says a rack, be it an empty one, may read from followers. A follower shows what it knows to be committed: its high
watermark is behind the leader's for a moment. An offset between the two ends of its log that it has, but does not know
to be committed, gets OFFSET_NOT_AVAILABLE: the consumer asks again. One outside of its log gets OFFSET_OUT_OF_RANGE:
the consumer goes back to the leader, which knows better.
"""

from __future__ import annotations

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import NotLeaderOrFollower, OffsetNotAvailable
from sparklog.base.ids import TopicPartition
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.replica.manager import Replica, ReplicaManager
from sparklog.replica.messages import NO_LEADER

NO_REPLICA = -1
LEADER_ONLY = "leader"


def readable_replica(replicas: ReplicaManager, name: TopicPartition, client_rack: str | None) -> Replica:
    """The replica, if who says that rack (None: none at all) may read from it; raises as `ReplicaManager.get` does."""
    if client_rack is None:
        return replicas.get_leader(name)
    replica = replicas.get(name)
    partition = replica.partition
    if not partition.is_leader and partition.leader == NO_LEADER:
        raise NotLeaderOrFollower(f"{name}: nobody leads it, as far as is known here")
    return replica


def check_is_committed(replica: Replica, fetch_offset: int) -> None:
    """Raises OffsetNotAvailable where a follower does not know yet whether that offset may be read."""
    partition = replica.partition
    if not partition.is_leader and partition.high_watermark < fetch_offset <= replica.log.log_end_offset:
        raise OffsetNotAvailable(
            f"{partition.name}: offset {fetch_offset} is not known to be committed, only what is below "
            f"{partition.high_watermark}"
        )


def preferred_read_replica(
    config: BrokerConfig, metadata: MetadataCache, replica: Replica, fetch_offset: int, client_rack: str | None
) -> int:
    """The id of the broker that a consumer in that rack should read from instead of this one; NO_REPLICA: none."""
    if not client_rack or config.replica_selector_class == LEADER_ONLY or not replica.partition.is_leader:
        return NO_REPLICA
    if config.broker_rack == client_rack:
        return NO_REPLICA
    having = [
        (follower.log_end_offset, -follower.broker_id)
        for follower in replica.partition.followers.values()
        if (info := metadata.brokers.get(follower.broker_id)) is not None
        and info.rack == client_rack
        and 0 <= follower.log_start_offset <= fetch_offset <= follower.log_end_offset
    ]
    return -max(having)[1] if having else NO_REPLICA
