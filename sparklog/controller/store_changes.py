"""The controller's handlers for changes that other writers made in the cluster store.

    topics     elect the first leader of a new partition: the first live replica. Forget a topic that disappeared
               without a request for its deletion, once the store is seen to have its id `SURE_S` later. Partitions of a
               topic that a broker has restored have states already
    ISR        read the ISRs that leaders changed, and inform all brokers
    configs    inform all brokers; elect leaders where unclean elections are allowed now
    ACLs       inform all brokers

A notice is deleted after it has been handled. If the controller fails before that, nothing is lost: the next controller
reads the whole store, and deletes all earlier notices.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from sparklog.base.acls import AclBinding
from sparklog.base.client_metrics import ClientMetricsConfigs
from sparklog.base.errors import StoreError
from sparklog.base.ids import TopicPartition
from sparklog.base.quotas import ClientQuota
from sparklog.cluster.client_metrics import ENTITY
from sparklog.cluster.config_nodes import CONFIG_CHANGES
from sparklog.cluster.history import HistoryKind
from sparklog.cluster.identity import SURE_S
from sparklog.cluster.model import ReplicaAssignment
from sparklog.cluster.partition_states import ISR_CHANGES
from sparklog.cluster.topics import TopicAssignment
from sparklog.controller.cluster_reading import (
    configured,
    read_acls,
    read_client_metrics,
    read_deletions,
    read_notices,
    read_overrides,
    read_quotas,
    read_topics,
    watch_requests,
)
from sparklog.controller.dependencies import ControllerDependencies, set_broker_overrides
from sparklog.controller.operations import Operations
from sparklog.controller.partition_state_machine import read_again
from sparklog.controller.states import PartitionState, ReplicaState
from sparklog.controller.store_watches import StoreEvent

logger = logging.getLogger(__name__)


class StoreChangeHandlers:
    """The handlers for changes in the store of one controller, from its election to its end."""

    def __init__(self, dependencies: ControllerDependencies, operations: Operations) -> None:
        self._dependencies = dependencies
        self._context = dependencies.context
        self._operations = operations
        self._missing: dict[str, float] = {}
        """When topics without a deletion request were first found missing, by the loop's clock."""

    async def topics_changed(self) -> None:
        """Add new topics and partitions, and forget topics that are gone or replaced by another of the same name."""
        dependencies, context = self._dependencies, self._context
        topics = await dependencies.store.read(read_topics, dependencies.watches, dependencies.topic_store)
        replaced = {
            name
            for name, assignment in topics.read.items()
            if context.topic_ids.get(name, assignment.topic_id) != assignment.topic_id
        }
        await self._forget(sorted(await self._confirm_deleted(context.topic_ids.keys() - topics.names) | replaced))
        added: list[TopicPartition] = []
        for name, assignment in topics.read.items():
            if name not in context.topic_ids:
                context.add_topic(name, assignment.topic_id, ())
                context.set_overrides({name: topics.overrides[name]})
                self._note_topic(name, assignment.partitions)
            elif len(assignment.partitions) > len(context.assignments[name]) and name not in context.deleting:
                dependencies.note(HistoryKind.PARTITIONS_ADDED, name, partitions=len(assignment.partitions))
            if name not in context.deleting:
                added += self._add_partitions(name, assignment)
        await self._begin(await self._adopt_restored(added))
        await self._elect_restored(topics.read)

    def note_new_topics(self) -> None:
        """Record in the history the topics that were created while there was no controller: they have no leaders."""
        for topic in sorted(self._context.topic_ids.keys() - {name.topic for name in self._context.leadership}):
            self._note_topic(topic, [self._context.assignment(name) for name in self._context.partitions_of(topic)])

    def _note_topic(self, topic: str, partitions: Sequence[ReplicaAssignment]) -> None:
        self._dependencies.note(
            HistoryKind.TOPIC_CREATED,
            topic,
            partitions=len(partitions),
            replicas=list(partitions[0].replicas) if partitions else [],
            configs=dict(self._context.overrides.get(topic, {})),
        )

    def _note_broker_configs(self, before: Mapping[int, Mapping[str, str]]) -> None:
        """Record the changed keys in the history, without values: some are passwords."""
        now = self._context.broker_overrides
        for broker_id in sorted(before.keys() | now.keys()):
            old, new = before.get(broker_id, {}), now.get(broker_id, {})
            if keys := sorted(each for each in old.keys() | new.keys() if old.get(each) != new.get(each)):
                self._dependencies.note(HistoryKind.CONFIG_CHANGED, broker=broker_id, keys=keys)

    def _add_partitions(self, topic: str, assignment: TopicAssignment) -> list[TopicPartition]:
        known = len(self._context.assignments[topic])
        added = []
        for number, replicas in list(enumerate(assignment.partitions))[known:]:
            added.append(name := TopicPartition(topic, number))
            self._context.set_assignment(name, replicas)
        return added

    async def _begin(self, names: Collection[TopicPartition]) -> None:
        """Elect the first leaders of new partitions. A partition without an online replica waits for one."""
        if not names:
            return
        context, dependencies = self._context, self._dependencies
        replicas = context.replicas(names)
        await dependencies.partitions.move(names, PartitionState.NEW)
        await dependencies.replicas.move(replicas, ReplicaState.NEW)
        dependencies.outbox.update_metadata({name.topic for name in names})
        await dependencies.partitions.move(names, PartitionState.ONLINE)
        online = {each for each in replicas if context.is_online(each.broker_id, each.name, with_shutting_down=True)}
        await dependencies.replicas.move(sorted(online), ReplicaState.ONLINE)
        await dependencies.replicas.move([each for each in replicas if each not in online], ReplicaState.OFFLINE)

    async def _adopt_restored(self, names: Collection[TopicPartition]) -> list[TopicPartition]:
        """Adopt the partitions that a broker has restored, with their states; return the others."""
        context, dependencies = self._context, self._dependencies
        await read_again(context, dependencies.store, names)
        restored = [name for name in names if name in context.leadership]
        for name in restored:
            dependencies.partitions.adopt(name)
        dependencies.outbox.flush()
        return [name for name in names if name not in context.leadership]

    async def _elect_restored(self, topics: Iterable[str]) -> None:
        """Elect leaders of restored partitions: another broker's copy may have changed their replicas."""
        names = [name for topic in sorted(topics) for name in self._context.partitions_of(topic)]
        waiting = [
            name for name in names if self._context.is_restored(name) and name.topic not in self._context.deleting
        ]
        await self._dependencies.partitions.move(waiting, PartitionState.ONLINE)

    async def _confirm_deleted(self, missing: Collection[str]) -> set[str]:
        """Return the missing topics that can be forgotten; schedule another check of the others.

        Raises StoreError if the store has lost everything.
        """
        asked = {name for name in missing if name in self._context.deleting}
        now = asyncio.get_running_loop().time()
        self._missing = {name: self._missing.get(name, now) for name in missing if name not in asked}
        if not self._missing:
            return asked
        if not await asyncio.to_thread(self._dependencies.is_own_store):
            raise StoreError("the cluster store has lost everything: its topics are not deleted")
        sure = {name for name, since in self._missing.items() if now - since >= SURE_S}
        if len(sure) < len(self._missing):
            self._dependencies.watches.again(StoreEvent.TOPICS, SURE_S)
        return asked | sure

    async def _forget(self, topics: Collection[str]) -> None:
        if not topics:
            return
        logger.warning("topics that are gone from the store: %s", topics)
        for topic in topics:
            self._context.remove_topic(topic)
            self._dependencies.note(HistoryKind.TOPIC_DELETED, topic)
        self._dependencies.outbox.update_metadata(topics)
        self._dependencies.outbox.flush()
        for operation in self._operations:
            await operation.topics_deleted(topics)

    async def deletions_asked(self) -> None:
        """Pass all topics with a deletion request to the operations."""
        marked = await self._dependencies.store.read(read_deletions, self._dependencies.watches)
        for operation in self._operations if marked else ():
            await operation.topics_marked(marked)

    async def isr_changed(self) -> None:
        """Read the ISRs that leaders have changed, inform all brokers, and delete the notices."""
        dependencies, context = self._dependencies, self._context
        notices = await dependencies.store.read(read_notices, dependencies.watches, ISR_CHANGES, StoreEvent.ISR_CHANGES)
        if not notices.paths:
            return
        entries = [each for value in notices.values for each in value["partitions"]]
        named = {TopicPartition(each["topic"], each["partition"]) for each in entries}
        names = sorted(named & context.leadership.keys())
        if names:
            await read_again(context, dependencies.store, names)
            dependencies.outbox.update_metadata({name.topic for name in names})
            dependencies.outbox.flush()
        await dependencies.store.delete(notices.paths)

    async def configs_changed(self) -> None:
        """Read the changed configurations, inform all brokers, elect leaders, and delete the notices.

        Topics that allow unclean elections now may get leaders.
        """
        dependencies, context = self._dependencies, self._context
        notices = await dependencies.store.read(read_notices, dependencies.watches, CONFIG_CHANGES, StoreEvent.CONFIGS)
        topics = [topic for topic in configured(notices, "topics") if topic in context.topic_ids]
        if not notices.paths:
            return
        may_elect: Iterable[str] = topics
        context.set_overrides(await asyncio.to_thread(read_overrides, dependencies.topic_store, topics))
        if configured(notices, "brokers"):
            before = context.broker_overrides
            was_unclean = dependencies.dynamic.current.topic_defaults.unclean_leader_election_enable
            overrides = await asyncio.to_thread(dependencies.topic_store.load_broker_overrides)
            set_broker_overrides(dependencies, overrides)
            self._note_broker_configs(before)
            if dependencies.dynamic.current.topic_defaults.unclean_leader_election_enable and not was_unclean:
                may_elect = context.topic_ids
        if any(configured(notices, kind) for kind in ("users", "clients", "ips")):
            self._set_quotas(await dependencies.store.read(read_quotas))
        if configured(notices, ENTITY):
            self._set_client_metrics(await dependencies.store.read(read_client_metrics))
        for topic in topics:
            dependencies.note(HistoryKind.CONFIG_CHANGED, topic, configs=dict(context.overrides[topic]))
        dependencies.outbox.update_metadata(topics)
        dependencies.outbox.flush()
        await self._elect_of(may_elect)
        await dependencies.store.delete(notices.paths)

    def _set_quotas(self, quotas: tuple[ClientQuota, ...]) -> None:
        context = self._context
        before = {quota.entity: quota.values for quota in context.quotas}
        now = {quota.entity: quota.values for quota in quotas}
        changed = [each for each in (before | now) if before.get(each) != now.get(each)]
        if not changed:  # the notice was about a user's password
            return
        told = {", ".join(map(str, each)): dict(now.get(each, {})) for each in changed}
        self._dependencies.note(HistoryKind.QUOTAS_CHANGED, quotas=told)
        context.set_quotas(quotas)
        self._dependencies.outbox.update_quotas()

    def _set_client_metrics(self, subscriptions: ClientMetricsConfigs) -> None:
        context = self._context
        before = context.client_metrics
        changed = [name for name in {**before, **subscriptions} if before.get(name) != subscriptions.get(name)]
        if not changed:
            return
        told = {name: dict(subscriptions.get(name, {})) for name in changed}
        self._dependencies.note(HistoryKind.CLIENT_METRICS_CHANGED, subscriptions=told)
        context.set_client_metrics(subscriptions)
        self._dependencies.outbox.update_client_metrics()

    async def acls_changed(self) -> None:
        """Read the ACLs, inform all brokers if they have changed, and delete the notices."""
        dependencies, context = self._dependencies, self._context
        notices, acls = await dependencies.store.read(read_acls, dependencies.watches)
        if acls != context.acls:
            self._note_acls(context.acls, acls)
            context.set_acls(acls)
            dependencies.outbox.update_acls()
            dependencies.outbox.flush()
        await dependencies.store.delete(notices)

    def _note_acls(self, before: frozenset[AclBinding], now: frozenset[AclBinding]) -> None:
        created, deleted = (sorted(map(str, each)) for each in (now - before, before - now))
        self._dependencies.note(HistoryKind.ACLS_CHANGED, created=created, deleted=deleted)

    async def _elect_of(self, topics: Iterable[str]) -> None:
        """Elect leaders for offline partitions of topics that may allow unclean elections now."""
        named = set(topics) - self._context.deleting
        waiting = [name for name in self._context.partitions_in(PartitionState.OFFLINE) if name.topic in named]
        await self._dependencies.partitions.move(waiting, PartitionState.ONLINE)

    async def requests_made(self) -> None:
        """Have the operations read the requests that older tools leave in the store."""
        await self._dependencies.store.read(watch_requests, self._dependencies.watches)
        for operation in self._operations:
            await operation.store_requests_changed()
