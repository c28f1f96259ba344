"""The replica that a consumer should read from, and whether it may read from this one (KIP-392).

Consumers state their rack (client.rack). With replica.selector.class=leader they read from the leader. With
RackAwareReplicaSelector the leader sends a consumer in another rack to a live replica in the consumer's rack that has
the offset; if several do, to the one with the highest log end offset.

A consumer that states a rack, even an empty one, may read from followers. A follower serves records up to its own high
watermark, which may lag the leader's. An offset of its log above that high watermark gets OFFSET_NOT_AVAILABLE, and the
consumer retries. An offset outside of its log gets OFFSET_OUT_OF_RANGE, and the consumer goes back to the leader.
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
    """Return the replica, if a consumer in that rack may read from it. client_rack: None: from the leader only

    Raises NotLeaderOrFollower if the partition has no known leader, and as `ReplicaManager.get` does.
    """
    if client_rack is None:
        return replicas.get_leader(name)
    replica = replicas.get(name)
    partition = replica.partition
    if not partition.is_leader and partition.leader == NO_LEADER:
        raise NotLeaderOrFollower(f"{name}: nobody leads it, as far as is known here")
    return replica


def check_is_committed(replica: Replica, fetch_offset: int) -> None:
    """Raises OffsetNotAvailable if this broker is a follower that does not know yet whether the offset is committed."""
    partition = replica.partition
    if not partition.is_leader and partition.high_watermark < fetch_offset <= replica.log.log_end_offset:
        raise OffsetNotAvailable(
            f"{partition.name}: offset {fetch_offset} is not known to be committed, only what is below "
            f"{partition.high_watermark}"
        )


def preferred_read_replica(
    config: BrokerConfig, metadata: MetadataCache, replica: Replica, fetch_offset: int, client_rack: str
) -> int:
    """Return the id of the broker that a consumer in that rack should read from; NO_REPLICA: this one."""
    if config.replica_selector_class == LEADER_ONLY or not replica.partition.is_leader:
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
