"""The active controller, from its election until another broker is elected or the broker stops.

It reads the whole cluster, informs all brokers, continues pending operations, and then handles one event at a time. Any
error ends it. All state that matters is in the store: the next controller, perhaps on the same broker, reads it again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from sparklog.base.config import BrokerConfig
from sparklog.base.dynamic_config import DynamicConfig
from sparklog.cluster.elections import ControllerElection
from sparklog.cluster.history import HistoryKind, HistoryRecorder
from sparklog.cluster.model import BrokerInfo
from sparklog.cluster.peers import Peers
from sparklog.cluster.store import Store
from sparklog.cluster.topics import TopicStore
from sparklog.controller.broker_changes import BrokerChangeHandlers
from sparklog.controller.channels import ChannelListener, Channels
from sparklog.controller.cluster_reading import ClusterState, read_cluster
from sparklog.controller.context import ControllerContext
from sparklog.controller.dependencies import ControllerDependencies, set_broker_overrides
from sparklog.controller.fenced_store import FencedStore
from sparklog.controller.operations import begin_operations
from sparklog.controller.outbox import Outbox, Request
from sparklog.controller.partition_state_machine import PartitionStateMachine
from sparklog.controller.replica_state_machine import ReplicaStateMachine
from sparklog.controller.store_changes import StoreChangeHandlers
from sparklog.controller.store_watches import StoreEvent, StoreWatches
from sparklog.replica.messages import LeaderAndIsr, LeaderAndIsrResponse, StopReplica, StopReplicaResponse

logger = logging.getLogger(__name__)


class ActiveController:
    """One controller, from its election to its end. All methods except `close` are for one task."""

    def __init__(
        self,
        elected: ControllerElection,
        *,
        store: Store,
        peers: Peers,
        config: BrokerConfig,
        numbers: Iterator[int],
        note: HistoryRecorder,
        is_own_store: Callable[[], bool],
        report: Callable[[StoreEvent], None],
        listener: ChannelListener,
        store_id: str,
    ) -> None:
        context = ControllerContext(epoch=elected.epoch, epoch_version=elected.epoch_version)
        fenced = FencedStore(store, elected.epoch_version)
        channels = Channels(peers, listener, timeout_ms=config.controller_socket_timeout_ms)
        outbox = Outbox(context, config.broker_id, channels.send, numbers, store_id=store_id)
        dynamic = DynamicConfig(config)
        self.elected = elected
        self.dependencies = ControllerDependencies(
            config=config,
            dynamic=dynamic,
            context=context,
            store=fenced,
            topic_store=TopicStore(store, config.topic_defaults),
            watches=StoreWatches(report),
            channels=channels,
            outbox=outbox,
            partitions=PartitionStateMachine(
                context, fenced, outbox, defaults=lambda: dynamic.current.topic_defaults, note=note
            ),
            replicas=ReplicaStateMachine(context, fenced, outbox, note=note),
            note=note,
            is_own_store=is_own_store,
        )
        self.operations = begin_operations(self.dependencies)
        self._liveness = BrokerChangeHandlers(self.dependencies, self.operations)
        self._changes = StoreChangeHandlers(self.dependencies, self.operations)
        self._handlers = {
            StoreEvent.BROKERS: self._liveness.brokers_changed,
            StoreEvent.DISKS: self._liveness.disks_failed,
            StoreEvent.TOPICS: self._changes.topics_changed,
            StoreEvent.DELETIONS: self._changes.deletions_asked,
            StoreEvent.ISR_CHANGES: self._changes.isr_changed,
            StoreEvent.CONFIGS: self._changes.configs_changed,
            StoreEvent.ACLS: self._changes.acls_changed,
            StoreEvent.REQUESTS: self._changes.requests_made,
        }

    async def begin(self) -> None:
        """Read the cluster, inform all brokers, and continue the operations of earlier controllers."""
        dependencies = self.dependencies
        dependencies.note(HistoryKind.CONTROLLER_ELECTED, controller_epoch=dependencies.context.epoch)
        await self._liveness.look()
        cluster = await dependencies.store.read(read_cluster, dependencies.watches, dependencies.topic_store)
        self._remember(cluster)
        await dependencies.store.note_initialized(cluster.topics.read, cluster.states)
        logger.info(
            "controller in epoch %s: %d brokers, %d topics",
            dependencies.context.epoch,
            len(dependencies.context.brokers),
            len(dependencies.context.topic_ids),
        )
        self._changes.note_new_topics()
        await self._liveness.begin()
        await dependencies.store.delete(cluster.notices)
        for operation in self.operations:
            await operation.resume()
        await self._changes.requests_made()
        await self._changes.deletions_asked()

    async def handle(self, event: StoreEvent) -> None:
        """Handle a change in the store: read the changed part again."""
        await self._handlers[event]()

    async def answered(self, broker: BrokerInfo, request: Request, response: Any) -> None:
        """Handle a broker's answer. Ignore an answer of an earlier broker epoch."""
        known = self.dependencies.context.brokers.get(broker.broker_id)
        if known is None or known.epoch != broker.epoch:
            return
        self.dependencies.context.answered[broker.broker_id] = request.number
        if isinstance(request, LeaderAndIsr) and isinstance(response, LeaderAndIsrResponse):
            await self._liveness.leaders_answered(broker.broker_id, request, response)
        elif isinstance(request, StopReplica) and isinstance(response, StopReplicaResponse):
            errors = {stop.name: response.errors.get(stop.name) for stop in request.partitions if stop.delete}
            for operation in self.operations if errors else ():
                await operation.replicas_stopped(broker.broker_id, errors)
        for operation in self.operations:
            await operation.broker_answered(broker.broker_id)

    async def complete_moves(self) -> None:
        """Have the operations handle the ISRs that an event read again or set.

        A leader that loses its leadership with the store's answer gives no notice of its last change; elections give
        none.
        """
        while names := self.dependencies.context.take_isrs():
            for operation in self.operations:
                await operation.isr_changed(names)

    def left_behind(self, broker_id: int) -> None:
        """Send a broker its full state again."""
        if broker_id in self.dependencies.context.brokers:
            self.dependencies.outbox.send_full_state(broker_id)
            self.dependencies.outbox.flush()

    def close(self) -> None:
        """Stop sending to brokers and stop watching the store."""
        self.dependencies.watches.close()
        self.dependencies.channels.close()

    def _remember(self, cluster: ClusterState) -> None:
        context = self.dependencies.context
        for topic, assignment in cluster.topics.read.items():
            context.add_topic(topic, assignment.topic_id, assignment.partitions)
        context.set_overrides(cluster.topics.overrides)
        context.leadership.update(cluster.states)
        set_broker_overrides(self.dependencies, cluster.broker_overrides)
        context.set_acls(cluster.acls)
        context.set_quotas(cluster.quotas)
        context.set_client_metrics(cluster.client_metrics)
        context.reassigning.update(name for name in context.partitions() if context.assignment(name).is_reassigning)
        if self.dependencies.config.delete_topic_enable:
            moving = {name.topic for name in context.reassigning}
            context.begin_deletion((context.topic_ids.keys() & set(cluster.deletions)) - moving)
