"""The collaborators of a controller, from its election to its end, in one value for all its dependencies."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparklog.base.config import BrokerConfig
from sparklog.cluster.history import Note
from sparklog.cluster.topics import TopicStore
from sparklog.controller.channels import Channels
from sparklog.controller.context import ControllerContext
from sparklog.controller.fenced_store import FencedStore
from sparklog.controller.outbox import Outbox
from sparklog.controller.partition_machine import PartitionMachine
from sparklog.controller.replica_machine import ReplicaMachine
from sparklog.controller.watching import Watching
from sparklog.runtime.slices import Slices

TOGETHER = 500
"""Number of a request's partitions that are decided on in one go: a few milliseconds of work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerDependencies:
    config: BrokerConfig
    context: ControllerContext
    store: FencedStore
    topic_store: TopicStore
    """Only for reads: the controller writes through `store`."""
    watching: Watching
    channels: Channels
    outbox: Outbox
    partitions: PartitionMachine
    replicas: ReplicaMachine
    note: Note
    """Records the decisions."""
    slices: Slices = field(default_factory=Slices)
    """A request may name thousands of partitions: they are decided on in slices."""
