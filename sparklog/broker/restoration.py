"""Restores the topics of a cluster store that was lost from the copies in this broker's log directories.

A store whose id differs from the recorded one is a replacement. Each broker that starts with it restores the topics
that it has copies of, before it registers: their ids, configurations, partitions and replicas
(cluster/restored_topics.py). The brokers may start in any order. A partition is led once all its replicas are
registered and have been compared.

If the store has the recorded id and has lost no changes, a topic that it lacks was deleted.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from uuid import UUID

from sparklog.base.config import BrokerConfig
from sparklog.broker.adoption import leapt
from sparklog.cluster.model import Topic
from sparklog.cluster.restored_topics import Restored, restore_topic
from sparklog.cluster.store import Store
from sparklog.cluster.topics import TopicStore
from sparklog.log.directory.manager import LogManager
from sparklog.log.directory.topic_configs import KeptAssignment, KeptConfig, config_of, leap_below
from sparklog.replica.messages import NO_LEADER

NOT_SURE = -1
logger = logging.getLogger(__name__)


def kept_topic(topic: Topic) -> KeptConfig:
    """Return the copy to keep of a topic."""
    return KeptConfig(
        topic.topic_id,
        topic.overrides,
        leap_below(info.leader_epoch for info in topic.partitions),
        partitions={
            number: KeptAssignment(
                replicas=info.replicas,
                adding=info.adding,
                removing=info.removing,
                leader_epoch=NOT_SURE if info.is_restored else info.leader_epoch,
            )
            for number, info in enumerate(topic.partitions)
        },
    )


def is_replaced(logs: LogManager, store_id: str) -> bool:
    """Return whether the store with that id has taken the place of the one that the log directories have noted."""
    if logs.store_id in ("", store_id):
        return False
    logger.error(
        "the cluster store was lost: it is %s, and was %s; topics are restored from the copies beside their logs",
        store_id, logs.store_id,
    )  # fmt: skip
    return True


def restore_topics(logs: LogManager, topics: TopicStore, config: BrokerConfig, store: Store) -> None:
    """Restore the topics that there are copies of. Blocks."""
    epochs: dict[str, dict[int, int]] = defaultdict(dict)
    ids: dict[str, set[UUID | None]] = defaultdict(set)
    for log in logs:
        name, number = log.partition
        epochs[name][number] = log.latest_epoch
        ids[name].add(log.topic_id)
    for name, copy in sorted(logs.kept_topics.items()):
        if copy.topic_id is None or not copy.partitions or ids[name] - {copy.topic_id}:
            continue  # the copy is an earlier version's, or that of an earlier topic of the name
        latest = {
            number: max(kept.leader_epoch, epochs[name].get(number, NO_LEADER))
            for number, kept in copy.partitions.items()
        }
        outcome = restore_topic(
            store, topics, name, copy,
            store_id=logs.store_id, broker_id=config.broker_id, epochs=leapt(logs, name, copy.topic_id, latest),
        )  # fmt: skip
        _tell(name, outcome, len(copy.partitions))
        if outcome is not Restored.OTHER_TOPIC:
            logs.update_config(name, config_of(name, topics.load_overrides(name), config.topic_defaults))


def _tell(name: str, outcome: Restored, partitions: int) -> None:
    match outcome:
        case Restored.CREATED:
            logger.warning("restoring topic %s with %d partitions: the cluster store had lost it", name, partitions)
        case Restored.MERGED:
            logger.warning("topic %s: this broker's copy is newer than what was restored, and was merged", name)
        case Restored.OTHER_TOPIC:
            logger.error(
                "topic %s is not restored: another topic has its name by now. Its folders stay, and are not served",
                name,
            )
