"""The collaborators of one active controller, in one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct, field

from sparklog.base.config import BrokerConfig
from sparklog.base.dynamic_config import DynamicConfig
from sparklog.cluster.broker_epochs import read_broker_epochs
from sparklog.cluster.history import HistoryRecorder
from sparklog.cluster.model import BrokerInfo
from sparklog.cluster.topics import ALL_BROKERS, TopicStore
from sparklog.controller.channels import Channels
from sparklog.controller.context import ControllerContext
from sparklog.controller.fenced_store import FencedStore
from sparklog.controller.outbox import Outbox
from sparklog.controller.partition_state_machine import PartitionStateMachine
from sparklog.controller.replica_state_machine import ReplicaStateMachine
from sparklog.controller.store_watches import StoreWatches
from sparklog.runtime.slices import Slices

TOGETHER = 500
"""Partitions of a request that are decided on together: a few milliseconds of work."""


class ControllerDependencies(Struct, frozen=True, kw_only=True):
    config: BrokerConfig
    dynamic: DynamicConfig
    """The present configuration of the controller's broker, by the store."""
    context: ControllerContext
    store: FencedStore
    topic_store: TopicStore
    """Only for reads: the controller writes through `store`."""
    watches: StoreWatches
    channels: Channels
    outbox: Outbox
    partitions: PartitionStateMachine
    replicas: ReplicaStateMachine
    note: HistoryRecorder
    """Records the decisions."""
    is_own_store: Callable[[], bool] = lambda: True
    """Returns whether the store is still the one of the broker's start. May block, and raise StoreError."""
    slices: Slices = field(default_factory=Slices)
    """Cuts requests of thousands of partitions into slices."""


def set_broker_overrides(dependencies: ControllerDependencies, overrides: Mapping[int, Mapping[str, str]]) -> None:
    """Apply the keys that were set for brokers at run time."""
    dependencies.context.set_broker_overrides(overrides)
    own = overrides.get(dependencies.config.broker_id, {})
    dependencies.dynamic.set_overrides(overrides.get(ALL_BROKERS, {}), own)


async def publish_broker_epochs(dependencies: ControllerDependencies, brokers: Mapping[int, BrokerInfo]) -> None:
    """Publish the epochs of these brokers: their replicas may be in sync.

    Leaders check what is published (`cluster/broker_epochs.py`), so they do not add a broker that is shutting down to
    an ISR again.
    """
    epochs = {broker_id: info.epoch for broker_id, info in brokers.items()}
    stopping = frozenset(epochs.keys() & dependencies.context.shutting_down.keys())
    published = await dependencies.store.read(read_broker_epochs)
    if epochs != published.epochs or stopping != published.stopping:
        await dependencies.store.multi([published.write(epochs, stopping)])
