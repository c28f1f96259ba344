"""Deletion of topics: first their replicas on all brokers, then their nodes in the store.

/admin/delete_topics/T requests a deletion, and stays until the deletion is complete. Each new controller begins again:
a broker that has already deleted a replica answers at once.

    1. partitions go Offline, then NonExistent, without a leader; brokers forget the topic (UpdateMetadata)
    2. replicas on live brokers go Offline (StopReplica), then DeletionStarted (StopReplica with deletion)
    3. a broker's answer moves its replicas to DeletionSuccessful, or to DeletionIneligible if it failed. Replicas on
       brokers that are down, or go down meanwhile, become DeletionIneligible too
    4. once all are DeletionSuccessful, the topic is deleted from the store: states first, in as many transactions as
       needed, then the topic, its configuration and the mark in one

A topic with an ineligible replica waits (`deletion_ineligible`) until a broker comes or asks again. The deletion of a
topic with a reassignment begins once the reassignment has ended or was cancelled; the topic stays in use until then.
Kafka waits too, but elects no leaders for the topic meanwhile, so the reassignment may never end.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence

from sparklog.base.errors import BadVersion, KafkaError, NoNode, NotEmpty, StoreError
from sparklog.base.ids import TopicPartition
from sparklog.cluster.history import HistoryKind
from sparklog.cluster.store import Delete, Store, subtree
from sparklog.cluster.topics import CONFIGS, DELETIONS, TOPICS
from sparklog.controller.context import PartitionAndReplica
from sparklog.controller.dependencies import ControllerDependencies
from sparklog.controller.operation import ControllerOperation
from sparklog.controller.states import PartitionState, ReplicaState

MAX_ROUNDS = 100
NODES_AT_ONCE = 1_000
"""Maximum per transaction, to stay below ZooKeeper's limit of 1 MiB per request."""
logger = logging.getLogger(__name__)


class TopicDeletion(ControllerOperation):
    """The topic deletions of one controller, from its election to its end."""

    def __init__(self, dependencies: ControllerDependencies) -> None:
        self._context = dependencies.context
        self._store = dependencies.store
        self._outbox = dependencies.outbox
        self._note = dependencies.note
        self._partitions = dependencies.partitions
        self._replicas = dependencies.replicas
        self._is_enabled = dependencies.config.delete_topic_enable
        self._marked: set[str] = set()

    def is_marked(self, topic: str) -> bool:
        """Return whether the topic has a deletion request, or is in deletion."""
        return topic in self._marked or topic in self._context.deleting

    async def topics_marked(self, topics: Collection[str]) -> None:
        marked = set(topics)
        there = set(await self._store.read(_topics)) if self._is_enabled else set()
        for topic in sorted(marked - there):
            logger.warning("%s is not deleted: %s", topic, "there is none" if self._is_enabled else "that is disabled")
            await self._delete_mark(topic)
        self._marked |= marked & there
        await self.resume()

    async def topics_deleted(self, topics: Collection[str]) -> None:
        self._marked.difference_update(topics)

    async def brokers_came(self, brokers: Collection[int]) -> None:
        """Continue the deletions that waited for these brokers."""
        topics = {replica.name.topic for replica in self._context.replicas_on(brokers)}
        self._context.resume_deletion(topics)
        await self.resume()

    async def replicas_failed(self, replicas: Sequence[PartitionAndReplica]) -> None:
        """Make replicas on failed brokers or disks ineligible."""
        await self._make_ineligible(
            [replica for replica in replicas if replica.name.topic in self._context.deletion_begun]
        )
        await self.resume()

    async def replicas_stopped(self, broker_id: int, errors: Mapping[TopicPartition, KafkaError | None]) -> None:
        begun = {
            replica: error
            for name, error in sorted(errors.items())
            if self._context.replica_state(replica := PartitionAndReplica(name, broker_id))
            is ReplicaState.DELETION_STARTED
        }
        failed = [replica for replica, error in begun.items() if error is not None]
        for replica in failed:
            logger.warning("%s is not deleted yet: %s", replica, begun[replica])
        await self._replicas.move([each for each in begun if each not in failed], ReplicaState.DELETION_SUCCESSFUL)
        await self._make_ineligible(failed)
        await self.resume()

    async def isr_changed(self, names: Collection[TopicPartition]) -> None:
        """Continue deletions: a move that a topic waited for may have been completed."""
        if self._marked - self._context.deleting:
            await self.resume()

    async def resume(self) -> None:
        """Continue the deletion of all topics that need not wait."""
        self._put_in_deletion()
        for topic in sorted(self._context.deleting):
            replicas = self._context.replicas_of(topic)
            states = {self._context.replica_state(replica) for replica in replicas}
            if states <= {ReplicaState.DELETION_SUCCESSFUL}:
                await self._complete(topic)
            elif ReplicaState.DELETION_STARTED not in states and topic not in self._context.deletion_ineligible:
                await self._begin(topic)

    def _put_in_deletion(self) -> None:
        """Put the marked topics in deletion, except those with a reassignment."""
        moving = {name.topic for name in self._context.reassigning}
        self._context.begin_deletion(self._marked - moving)

    async def _begin(self, topic: str) -> None:
        context = self._context
        if topic not in context.deletion_begun:
            logger.info("deleting topic %s", topic)
            there = [
                name
                for name in context.partitions_of(topic)
                if context.partition_state(name) is not PartitionState.NON_EXISTENT
            ]
            await self._partitions.move(there, PartitionState.OFFLINE)
            await self._partitions.move(there, PartitionState.NON_EXISTENT)
            context.deletion_begun.add(topic)
            self._outbox.update_metadata([topic])
            self._outbox.flush()
        left = [
            replica
            for replica in context.replicas_of(topic)
            if context.replica_state(replica) is not ReplicaState.DELETION_SUCCESSFUL
        ]
        live = [replica for replica in left if context.is_online(replica.broker_id, replica.name)]
        dead = [replica for replica in left if replica not in set(live)]
        await self._replicas.move(live, ReplicaState.OFFLINE)
        await self._replicas.move(live, ReplicaState.DELETION_STARTED)
        await self._make_ineligible(dead)

    async def _make_ineligible(self, replicas: list[PartitionAndReplica]) -> None:
        """Make these replicas ineligible; their topics wait until a broker comes or asks again."""
        states = {replica: self._context.replica_state(replica) for replica in replicas}
        live = [each for each, state in states.items() if state in {ReplicaState.ONLINE, ReplicaState.NEW}]
        await self._replicas.move(live, ReplicaState.OFFLINE)
        left = [each for each, state in states.items() if state is not ReplicaState.DELETION_SUCCESSFUL]
        waiting = [each for each in left if self._context.replica_state(each) is not ReplicaState.DELETION_INELIGIBLE]
        await self._replicas.move(waiting, ReplicaState.DELETION_INELIGIBLE)
        self._context.suspend_deletion(replica.name.topic for replica in left)

    async def _complete(self, topic: str) -> None:
        for _ in range(MAX_ROUNDS):
            paths = await self._store.read(_paths_of, topic)
            try:
                for part in _in_parts(paths):
                    await self._store.multi(Delete(path) for path in part)
                break
            except (NoNode, NotEmpty, BadVersion):
                continue  # the topic has changed meanwhile: by another controller, or by added partitions
        else:
            raise StoreError(f"topic {topic} changes whenever it is to be deleted")
        await self._replicas.move(self._context.replicas_of(topic), ReplicaState.NON_EXISTENT)
        self._marked.discard(topic)
        self._context.remove_topic(topic)
        logger.info("deleted topic %s", topic)
        self._note(HistoryKind.TOPIC_DELETED, topic)

    async def _delete_mark(self, topic: str) -> None:
        try:
            await self._store.multi([Delete(f"{DELETIONS}/{topic}")])
        except NoNode:
            return


def _topics(store: Store) -> list[str]:
    return store.children(TOPICS)


def _paths_of(store: Store, topic: str) -> list[str]:
    """Return the topic's existing nodes in the order of their deletion, the mark last."""
    tops = (f"{TOPICS}/{topic}", f"{CONFIGS}/{topic}", f"{DELETIONS}/{topic}")
    return [path for top in tops if store.exists(top) for path in subtree(store, top)]


def _in_parts(paths: list[str]) -> Iterator[list[str]]:
    """Yield the paths of each transaction. The last three nodes (topic, configuration, mark) are in one."""
    for first in range(0, len(paths) - 3, NODES_AT_ONCE):
        yield paths[first : min(first + NODES_AT_ONCE, len(paths) - 3)]
    yield paths[-3:]
