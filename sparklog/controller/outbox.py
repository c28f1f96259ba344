"""Outgoing requests of one step of the controller, collected so that each broker gets few requests.

    LeaderAndIsr      to brokers that have a replica: the partition's state and the configuration of its topic
    UpdateMetadata    to all brokers: the brokers, the state of the topics that have changed, and the ACLs, the client
                      quotas or the subscriptions to client metrics if they have changed
    StopReplica       to a broker that has to stop or delete a replica

`flush` makes the requests from the context at that time, and passes them to the brokers' channels in this order: a new
leader learns of its leadership before clients look for it. A broker that gets all metadata gets them before its
leaderships: a coordinator that begins to lead deletes the offsets of topics that have another id now. Requests for
brokers that are not registered are dropped; such a broker gets the full state when it registers.

Brokers limit the bytes and fields of a request. A request above `MAX_REQUEST_BYTES`, which is far below that limit, is
split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import zip_longest

from sparklog.base.ids import TopicPartition
from sparklog.cluster.messages import TopicState, UpdateMetadata
from sparklog.controller.context import ControllerContext, PartitionAndReplica
from sparklog.controller.states import ReplicaState
from sparklog.replica.messages import (
    LEADER_EPOCH_DURING_DELETE,
    LeaderAndIsr,
    LeaderAndIsrPartitionState,
    StopPartition,
    StopReplica,
)
from sparklog.runtime.slices import in_parts

MAX_REQUEST_BYTES = 2 << 20
"""Approximate size of a request: 20,000 partitions of topics with short names."""
PARTITION_BYTES = 64
"""Bytes of a partition besides names and replicas."""
BROKER_ID_BYTES = 5
ENTRY_BYTES = 8
"""Bytes of a configuration key besides its name and value."""
Request = LeaderAndIsr | UpdateMetadata | StopReplica
Send = Callable[[int, Request], None]


class Outbox:
    """Requests of one controller, until they are passed to the channels."""

    def __init__(
        self, context: ControllerContext, broker_id: int, send: Send, numbers: Iterator[int], *, store_id: str = ""
    ) -> None:
        """numbers: grow across the controllers of this broker, as two of them may have the same epoch."""
        self._context = context
        self._broker_id = broker_id
        self._send = send
        self._numbers = numbers
        self._store_id = store_id
        self._leaderships: dict[int, dict[TopicPartition, bool]] = {}
        self._stops: dict[int, dict[TopicPartition, bool]] = {}
        self._topics: dict[int, set[str]] = {}
        self._full: set[int] = set()
        self._acls: set[int] = set()
        self._quotas: set[int] = set()
        self._client_metrics: set[int] = set()
        self._is_held = False

    def leader_and_isr(self, brokers: Iterable[int], name: TopicPartition, *, is_new: bool = False) -> None:
        """Send the partition's state to `brokers`, and its topic to all brokers. is_new: no replica can have records"""
        for broker in brokers:
            told = self._leaderships.setdefault(broker, {})
            told[name] = told.get(name, False) or is_new
        self.update_metadata([name.topic])

    def stop_replica(self, replica: PartitionAndReplica, *, delete: bool) -> None:
        """Have a broker stop a replica, and delete its log if this or an earlier call says so."""
        stops = self._stops.setdefault(replica.broker_id, {})
        stops[replica.name] = stops.get(replica.name, False) or delete

    def update_metadata(self, topics: Iterable[str] = (), *, brokers: Iterable[int] | None = None) -> None:
        """Send `brokers` the list of brokers and the state of these topics, deleted ones included. None: all brokers"""
        named = list(topics)
        for broker in self._context.brokers if brokers is None else brokers:
            self._topics.setdefault(broker, set()).update(named)

    def ask_whether_alive(self) -> int:
        """Send all brokers a request that changes nothing, and return the number before that of these requests."""
        number = next(self._numbers)
        self.update_metadata()
        return number

    def send_all_metadata(self, brokers: Iterable[int]) -> None:
        """Send `brokers` a full UpdateMetadata, which replaces their former state."""
        for broker in brokers:
            self._topics.setdefault(broker, set())
            self._full.add(broker)

    def update_acls(self) -> None:
        """Send all brokers the list of brokers and all ACLs."""
        self._acls.update(self._context.brokers)
        self.update_metadata(())

    def update_quotas(self) -> None:
        """Send all brokers the list of brokers and all client quotas."""
        self._quotas.update(self._context.brokers)
        self.update_metadata(())

    def update_client_metrics(self) -> None:
        """Send all brokers the list of brokers and all subscriptions to metrics of clients."""
        self._client_metrics.update(self._context.brokers)
        self.update_metadata(())

    def send_full_state(self, broker: int) -> None:
        """Send a broker all metadata, and the states of all its replicas."""
        self.send_all_metadata([broker])
        self.flush()
        self.update_metadata(brokers=[broker])  # after its leaderships: a broker that starts waits for both
        for replica in self._context.replicas_on([broker]):
            match self._context.replica_state(replica):
                case ReplicaState.ONLINE | ReplicaState.NEW if replica.name in self._context.leadership:
                    self._leaderships.setdefault(broker, {})[replica.name] = False
                case ReplicaState.OFFLINE:
                    self.stop_replica(replica, delete=False)
                case ReplicaState.DELETION_STARTED:
                    self.stop_replica(replica, delete=True)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold back the requests of several transitions until the end: each partition would send its whole topic."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        self.flush()

    def flush(self) -> None:
        """Pass all requests to the channels, unless they are held back (`held`)."""
        if self._is_held:
            return
        for told_of, requests in (
            (self._leaderships, self._leader_and_isr),
            (self._topics, self._update_metadata),
            (self._stops, self._stop_replica),
        ):
            for broker in sorted(told_of.keys() & self._context.brokers.keys()):
                for request in requests(broker):
                    self._send(broker, request)
        for gathered in (
            self._leaderships, self._topics, self._stops, self._full, self._acls, self._quotas, self._client_metrics
        ):  # fmt: skip
            gathered.clear()

    def _leader_and_isr(self, broker: int) -> Iterator[LeaderAndIsr]:
        context, told = self._context, self._leaderships[broker]
        counted: set[str] = set()

        def weigh(state: LeaderAndIsrPartitionState) -> int:
            topic = state.name.topic
            size = len(topic) + _partition_bytes(state.isr, state.replicas, state.adding, state.removing)
            if topic not in counted:
                counted.add(topic)
                size += len(topic) + _overrides_bytes(context.overrides.get(topic, {}))
            return size

        for part in in_parts((self._state(name, is_new=told[name]) for name in sorted(told)), weigh, MAX_REQUEST_BYTES):
            yield LeaderAndIsr(
                controller_id=self._broker_id,
                controller_epoch=context.epoch,
                broker_epoch=context.brokers[broker].epoch,
                number=next(self._numbers),
                store_id=self._store_id,
                partitions=tuple(part),
                overrides={
                    topic: context.overrides.get(topic, {}) for topic in sorted({state.name.topic for state in part})
                },
            )

    def _state(self, name: TopicPartition, *, is_new: bool) -> LeaderAndIsrPartitionState:
        assignment, known = self._context.assignment(name), self._context.leadership[name]
        return LeaderAndIsrPartitionState(
            name=name,
            topic_id=self._context.topic_ids[name.topic],
            leader=known.leader,
            leader_epoch=known.leader_epoch,
            isr=known.isr,
            replicas=assignment.replicas,
            adding=assignment.adding,
            removing=assignment.removing,
            partition_epoch=known.version,
            is_new=is_new,
        )

    def _update_metadata(self, broker: int) -> Iterator[UpdateMetadata]:
        context, is_full = self._context, broker in self._full
        served = context.topic_ids.keys() - context.deleting
        told = context.topic_ids.keys() if is_full else self._topics[broker]
        states = (context.topic_state(topic) for topic in sorted(told & served))
        parts = list(
            zip_longest(
                in_parts(states, _topic_bytes, MAX_REQUEST_BYTES),
                in_parts(sorted(told - served), len, MAX_REQUEST_BYTES),
                fillvalue=(),
            )
        )
        first = 0
        for index, (topics, deleted) in enumerate(parts):
            number = next(self._numbers)
            first = first or number
            is_first, is_part = index == 0, len(parts) > 1
            yield UpdateMetadata(
                controller_id=self._broker_id,
                controller_epoch=context.epoch,
                broker_epoch=context.brokers[broker].epoch,
                number=number,
                store_id=self._store_id,
                brokers=tuple(context.brokers[each] for each in sorted(context.brokers)),
                topics=tuple(topics),
                deleted=tuple(deleted),
                is_full=is_full and not is_part,
                full_since=first if is_full and is_part else 0,
                ends_full=is_full and is_part and index == len(parts) - 1,
                broker_overrides=context.broker_overrides,
                acls=context.acls if is_first and (is_full or broker in self._acls) else None,
                quotas=context.quotas if is_first and (is_full or broker in self._quotas) else None,
                client_metrics=(
                    context.client_metrics if is_first and (is_full or broker in self._client_metrics) else None
                ),
            )

    def _stop_replica(self, broker: int) -> Iterator[StopReplica]:
        context, stops = self._context, self._stops[broker]
        for part in in_parts(sorted(stops), lambda name: len(name.topic) + PARTITION_BYTES, MAX_REQUEST_BYTES):
            yield StopReplica(
                controller_id=self._broker_id,
                controller_epoch=context.epoch,
                broker_epoch=context.brokers[broker].epoch,
                number=next(self._numbers),
                store_id=self._store_id,
                partitions=tuple(
                    StopPartition(name=name, leader_epoch=self._stop_epoch(name), delete=stops[name]) for name in part
                ),
            )

    def _stop_epoch(self, name: TopicPartition) -> int:
        known = self._context.leadership.get(name)
        if known is None or name.topic in self._context.deleting:
            return LEADER_EPOCH_DURING_DELETE
        return known.leader_epoch


def _topic_bytes(topic: TopicState) -> int:
    return (
        PARTITION_BYTES
        + len(topic.name)
        + _overrides_bytes(topic.overrides)
        + sum(
            _partition_bytes(part.in_sync_replicas, part.replicas, part.adding, part.removing)
            for part in topic.partitions
        )
    )


def _partition_bytes(*brokers: tuple[int, ...]) -> int:
    return PARTITION_BYTES + BROKER_ID_BYTES * sum(map(len, brokers))


def _overrides_bytes(overrides: Mapping[str, str]) -> int:
    return sum(len(key) + len(value) + ENTRY_BYTES for key, value in overrides.items())
