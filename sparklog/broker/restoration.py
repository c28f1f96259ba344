"""Restoration and adoption of topics, where a starting broker's log directories and the cluster store disagree.

Nothing is deleted.

Restoration
-----------
A store whose id differs from the recorded one is a replacement. Before it registers, each starting broker restores the
topics that it has copies of: their ids, configurations, partitions and replicas (cluster/restored_topics.py). The
brokers may start in any order. A partition gets a leader once all its replicas are registered and have been compared.

A store may also have lost the states of some partitions, and kept their topics. The controller marks these topics as
unsure, and a starting broker restores the states.

Adoption
--------
Topic folders that the store does not know become topics, as in a log directory that Apache Kafka wrote, or one whose
cluster store was lost. A broker adopts at its start, before it registers, and only if no other broker is registered.
With other brokers the topic may be theirs, or deleted meanwhile: then the folders stay and a warning is logged.

If the store once had the topic, and has lost no changes since, the topic was deleted meanwhile. Its folders are renamed
to `-stray`, as Apache Kafka does: a new topic of that name begins with empty logs. Later starts neither open nor delete
them. The same happens if the store has another topic of the name by now.

An adopted topic gets the id in its folders and the configuration kept beside them (log/directory/topic_configs.py).
If none was kept, an internal topic gets its own configuration, and any other topic keeps all its records until an
administrator configures it. This broker alone leads its partitions, in a leader epoch that no batch in them has. A
partition that cannot be opened is adopted with the others, and is served once its files are whole.

A store that has lost changes, as SQLite's can lose its write-ahead log, may know topics with an outdated configuration:
they get the kept configuration back. So does a topic that has none at all in the store. Their leader epochs leap by
LEAP: clients refuse a leader with an older epoch than they have seen, and logs do not show epochs without records. The
epoch after the leap is kept beside the topic's configuration: the store may be lost again before a record has it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from uuid import UUID

from msgspec import structs

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import BadVersion, NoNode
from sparklog.base.ids import TopicPartition
from sparklog.broker.internal_topics import overrides_of
from sparklog.cluster.model import PartitionInfo
from sparklog.cluster.partition_states import encode_state, read_states
from sparklog.cluster.restored_topics import RestoreOutcome, restore_lost_states, restore_topic
from sparklog.cluster.store import Store
from sparklog.cluster.topics import TopicStore, state_path
from sparklog.log.directory.manager import LogManager, set_deleted_aside
from sparklog.log.directory.topic_configs import LEAP, UNLIMITED, Overrides, config_of
from sparklog.log.log import Log
from sparklog.replica.messages import NO_LEADER

logger = logging.getLogger(__name__)


def is_replaced(logs: LogManager, store_id: str) -> bool:
    """Return whether the store has another id than the one that the log directories have recorded."""
    if logs.store_id in ("", store_id):
        return False
    logger.error(
        "the cluster store was lost: it is %s, and was %s; topics are restored from the copies beside their logs",
        store_id, logs.store_id,
    )  # fmt: skip
    return True


def missing_topics(logs: LogManager, topics: TopicStore, store_id: str) -> set[str]:
    """Return the topics with folders here that the recorded store had, and does not have now. Blocks."""
    if logs.store_id != store_id:
        return set()
    here = {partition.topic for partition in logs.partitions}
    return {name for name, copy in logs.kept_topics.items() if copy.topic_id and name in here} - set(topics.names())


def restore_topics(logs: LogManager, topics: TopicStore, config: BrokerConfig, store: Store) -> None:
    """Restore the topics from their copies beside the logs. Blocks."""
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
        _log_outcome(name, outcome, len(copy.partitions))
        if outcome is not RestoreOutcome.OTHER_TOPIC:
            logs.update_configs({name: config_of(name, topics.load_overrides(name), config.topic_defaults)})


def restore_states(logs: LogManager, topics: TopicStore, store: Store) -> None:
    """Restore lost states of partitions whose topics the store still has. Blocks.

    A restored state has no leader and an empty ISR: the controller compares the replicas, as for restored topics.
    """
    epochs = {log.partition: log.latest_epoch for log in logs}
    for name, copy in sorted(logs.kept_topics.items()):
        if copy.topic_id is None or not topics.is_unsure(name) or topics.is_marked_deleted(name):
            continue
        with suppress(NoNode):  # the topic is being deleted
            assignment = topics.load_assignment(name)
            if assignment.topic_id != copy.topic_id:
                continue
            every = [TopicPartition(name, number) for number in range(assignment.initialized)]
            lost = assignment.lost_states(name, read_states(store, every))
            if not lost:
                continue
            logger.warning("restoring the states of %s: the cluster store had lost them", ", ".join(map(str, lost)))
            kept = {number: each.leader_epoch for number, each in copy.partitions.items()}
            latest = {each.partition: max(kept.get(each.partition, 0), epochs.get(each, 0)) for each in lost}
            restore_lost_states(store, name, leapt(logs, name, copy.topic_id, latest))


def _log_outcome(name: str, outcome: RestoreOutcome, partitions: int) -> None:
    match outcome:
        case RestoreOutcome.CREATED:
            logger.warning("restoring topic %s with %d partitions: the cluster store had lost it", name, partitions)
        case RestoreOutcome.MERGED:
            logger.warning("topic %s: this broker's copy is newer than what was restored, and was merged", name)
        case RestoreOutcome.OTHER_TOPIC:
            logger.error(
                "topic %s is not restored: another topic has its name by now. Its folders stay, and are not served",
                name,
            )


def adopt(
    logs: LogManager,
    topics: TopicStore,
    config: BrokerConfig,
    *,
    others: Collection[int],
    has_lost_changes: bool,
    new_id: Callable[[], UUID],
) -> None:
    """Adopt the unknown topics. Blocks.

    others: the other registered brokers. has_lost_changes: whether the store has lost changes.
    """
    known = set(topics.names())
    if not has_lost_changes:
        _set_deleted_stray(logs, topics, known, config.broker_id)
    found: dict[str, dict[int, Log | None]] = {}
    opened = {log.partition: log for log in logs}
    for partition in sorted(logs.partitions):
        name, number = partition
        if name not in known:
            found.setdefault(name, {})[number] = opened.get(partition)
    for name, partitions in found.items():
        if others:
            logger.warning(
                "%s: %d partitions are on disk, but not in the cluster store; they stay as they are, and are not "
                "served: broker %s may know better", name, len(partitions), sorted(others)[0],
            )  # fmt: skip
            continue
        count = max(partitions) + 1
        topic_id = logs.find_topic_id(name)
        if topic_id is None and not any(partitions.values()):
            logger.error("%s: it is not adopted, as none of its %d partitions can be opened", name, len(partitions))
            continue
        overrides, source = _overrides_of(name, topic_id, logs, config)
        logger.warning(
            "adopting topic %s: its %d partitions are on disk, but not in the cluster store; its configuration is %s "
            "(%s)",
            name, len(partitions), source, _listed(overrides),
        )  # fmt: skip
        greatest = max((log.latest_epoch for log in partitions.values() if log), default=0)
        latest = dict.fromkeys(range(count), greatest + LEAP)  # those that cannot be opened may have later epochs
        latest |= {number: log.latest_epoch for number, log in partitions.items() if log}
        epochs = (
            leapt(logs, name, topic_id, latest)
            if has_lost_changes
            else {number: epoch + 1 for number, epoch in latest.items()}
        )
        infos = [_led_by(config.broker_id, epochs[number]) for number in range(count)]
        topics.create(name, topic_id or new_id(), infos, overrides)
        logs.update_configs({name: config_of(name, overrides, config.topic_defaults)})


def _set_deleted_stray(logs: LogManager, topics: TopicStore, known: Collection[str], broker_id: int) -> None:
    """Rename the folders of topics that were in the store, and are not any more.

    Folders of a topic in deletion are renamed too, except this broker's replicas, which the controller has deleted.
    known: the names of the store's topics. A folder without an id belongs to the topic whose copy is beside it.
    """
    here = {partition.topic for partition in logs.partitions}
    gone = {name: copy.topic_id for name, copy in logs.kept_topics.items() if copy.topic_id and name in here}
    marked = set(topics.marked_deleted())
    replicas: set[TopicPartition] = set()
    for name in gone.keys() & known:
        with suppress(NoNode):  # the topic was just deleted
            there = topics.load_assignment(name)
            if there.topic_id == gone[name] and name not in marked:
                del gone[name]
            elif there.topic_id == gone[name]:
                replicas |= {
                    TopicPartition(name, number)
                    for number, each in enumerate(there.partitions)
                    if broker_id in each.replicas
                }
    ids = {log.partition: log.topic_id for log in logs}
    stray = [
        name
        for name in logs.partitions
        if name.topic in gone and ids.get(name) in (None, gone[name.topic]) and name not in replicas
    ]
    if stray:
        set_deleted_aside(logs, stray, "while this broker was away")


def _overrides_of(name: str, topic_id: UUID | None, logs: LogManager, config: BrokerConfig) -> tuple[Overrides, str]:
    if (kept := logs.find_kept_config(name, topic_id)) is not None:
        return kept, "what was kept beside its folders"
    if (own := overrides_of(name, config)) is not None:
        return own, "that of the internal topic"
    return UNLIMITED, "not known, so all its records stay until you say otherwise"


def _led_by(broker_id: int, leader_epoch: int) -> PartitionInfo:
    return PartitionInfo(
        leader=broker_id,
        leader_epoch=leader_epoch,
        replicas=(broker_id,),
        in_sync_replicas=(broker_id,),
    )


def has_lost_changes(
    logs: LogManager, topics: TopicStore, store: Store, others: Collection[int], *, is_replaced: bool
) -> bool:
    """Return whether the store is behind the newest change that these log directories have recorded. Blocks.

    is_replaced: another broker created the store to replace a lost one, so numbers of changes cannot be compared

    The store may also be an older copy: then a log has batches of a leader epoch that the store has not reached. This
    is checked only if no other broker is registered: others have registered in a store that is up to date.
    """
    if not is_replaced and (newest_change := store.newest_change()) < logs.seen_change:
        why = f"the cluster store has lost changes: its newest is number {newest_change}, but number "
        why += f"{logs.seen_change} has been seen"
    elif not others and (ahead := _partitions_ahead(logs, topics, store)):
        why = f"the cluster store is an older one: {ahead[0]} and {len(ahead) - 1} other partitions have records of "
        why += "leader epochs that it has not come to"
    else:
        return False
    logger.error("%s; topics that it knows get back the configuration that was kept beside their folders", why)
    return True


def _partitions_ahead(logs: LogManager, topics: TopicStore, store: Store) -> list[TopicPartition]:
    """Return the partitions, of topics with the same id, that have records of a later leader epoch than the store's."""
    ids = {name: topics.load_assignment(name).topic_id for name in topics.names()}
    latest = {
        log.partition: max(log.latest_epoch, logs.leapt_to(log.partition.topic, log.topic_id))
        for log in logs
        if log.partition.topic in ids and log.topic_id == ids[log.partition.topic]
    }
    return [name for name, state in read_states(store, latest).items() if latest[name] > state.leader_epoch]


def restore(logs: LogManager, topics: TopicStore, config: BrokerConfig, store: Store) -> None:
    """Restore configurations and raise leader epochs in a store that has lost changes. Blocks.

    The assignments may be outdated, so brokers delete no replica because of them (strays.py).
    """
    for name in topics.names():
        topics.set_unsure(name)
        kept = logs.find_kept_config(name, topics.load_assignment(name).topic_id)
        if kept is not None and kept != (stored := topics.load_overrides(name)):
            logger.warning("topic %s gets back its configuration: %s, not %s", name, dict(kept), stored)
            topics.change_overrides(name, partial(_replace_by, kept))
            logs.update_configs({name: config_of(name, kept, config.topic_defaults)})
    _raise_epochs(logs, store)


def restore_broker_keys(logs: LogManager, topics: TopicStore, *, has_lost_changes: bool) -> None:
    """Restore the keys that were set for brokers at run time: a topic's retention may come from them. Blocks.

    has_lost_changes: replace the keys in the store, which may be outdated
    """
    for node, overrides in logs.kept_brokers.items():
        if overrides:
            topics.restore_broker_overrides(node, overrides, replaces=has_lost_changes)


def restore_lost_configs(logs: LogManager, topics: TopicStore, config: BrokerConfig) -> None:
    """Restore the configurations that are missing in the store, for topics with folders here. Blocks."""
    here = {partition.topic for partition in logs.partitions}
    for name in topics.unconfigured():
        if name not in here:
            continue  # a broker with the topic's folders may have a copy
        overrides, source = _overrides_of(name, topics.load_assignment(name).topic_id, logs, config)
        logger.error(
            "topic %s: its configuration is missing in the cluster store; it becomes %s (%s)",
            name, source, _listed(overrides),
        )  # fmt: skip
        topics.restore_overrides(name, overrides)
        logs.update_configs({name: config_of(name, overrides, config.topic_defaults)})


def _listed(overrides: Overrides) -> str:
    return ", ".join(f"{key}={value}" for key, value in overrides.items())


def _replace_by(kept: Overrides, _: Overrides) -> Overrides:
    return kept


def _raise_epochs(logs: LogManager, store: Store) -> None:
    states = read_states(store, [log.partition for log in logs])
    latest: dict[tuple[str, UUID | None], dict[int, int]] = {}
    for log in logs:
        if log.partition in states:
            of_topic = latest.setdefault((log.partition.topic, log.topic_id), {})
            of_topic[log.partition.partition] = max(log.latest_epoch, states[log.partition].leader_epoch)
    for (topic, topic_id), epochs in latest.items():
        for number, epoch in leapt(logs, topic, topic_id, epochs).items():
            _raise_epoch(store, TopicPartition(topic, number), epoch)


def _raise_epoch(store: Store, name: TopicPartition, epoch: int) -> None:
    """Raise a partition's leader epoch in the store; retry if a controller or a leader changes the state meanwhile."""
    for state in iter(lambda: read_states(store, [name]).get(name), None):
        if state.leader_epoch >= epoch:
            return
        with suppress(BadVersion):
            raised = structs.replace(state, leader_epoch=epoch)
            store.set(state_path(*name), encode_state(raised), state.version)
            return


def leapt(logs: LogManager, topic: str, topic_id: UUID | None, latest: Mapping[int, int]) -> dict[int, int]:
    """Return leader epochs that no client has seen, and record them. latest: each partition's latest epoch"""
    before = logs.leapt_to(topic, topic_id)
    found = {number: max(epoch, before) + LEAP for number, epoch in latest.items()}
    logs.note_leap(topic, topic_id, max(found.values()))
    return found
