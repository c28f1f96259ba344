"""The cluster as this broker knows it: requests read it without a call to the store.

The cache holds the controller's last updates (UpdateMetadata): brokers, topics and leaders. It may be behind the store,
and two brokers may differ for a moment. Updates of a deposed controller are refused.

Topics are immutable: a change replaces a topic, so a handler that holds one does not see it change.
Used on the event loop only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from sparklog.base.config import BrokerConfig
from sparklog.base.dynamic_config import DynamicConfig
from sparklog.base.errors import StaleControllerEpoch, UnknownTopicId, UnknownTopicOrPartition
from sparklog.base.ids import TopicPartition, encode_id
from sparklog.base.topic_config import TopicConfig
from sparklog.cluster.messages import TopicState, UpdateMetadata
from sparklog.cluster.model import BrokerInfo, CurrentLeader, PartitionInfo, Topic
from sparklog.cluster.topics import ALL_BROKERS, NO_LEADER
from sparklog.log.directory.topic_configs import config_of
from sparklog.runtime.purgatory import Purgatory

NO_CONTROLLER = -1
NO_EPOCH = -1


class MetadataChange(Struct, frozen=True, kw_only=True):
    """The changes by one update, for components that derive state from the cache."""

    put: tuple[Topic, ...]
    removed: tuple[Topic, ...]
    reconfigured: tuple[Topic, ...]
    """Topics with a changed configuration: their own keys have changed, or the defaults of topics."""
    rearranged: tuple[Topic, ...]
    """The part of `put` that is new, or has other configuration keys or replicas than before."""
    has_other_broker_keys: bool
    """Whether the keys that were set at run time for this broker, or for all, have changed."""
    is_full: bool
    """Whether the update was a full one, or the last part of one."""


class MetadataCache:
    """Topics by name and by id, brokers by id, and the controller."""

    def __init__(self, config: DynamicConfig | None = None) -> None:
        """config: this broker's, which updates change; None: one with defaults only"""
        self._config = config or DynamicConfig(BrokerConfig())
        self._topics: dict[str, Topic] = {}
        self._names: dict[UUID, str] = {}
        self._waiting: Purgatory[None] = Purgatory()
        self._broker_overrides: Mapping[int, Mapping[str, str]] = {}
        self.brokers: Mapping[int, BrokerInfo] = MappingProxyType({})
        """The live brokers by id, in the order of the ids."""
        self.controller_id = NO_CONTROLLER
        self.controller_epoch = NO_EPOCH
        self._number = 0
        self._full_since = 0
        self._named: set[str] = set()
        """The topics of the parts of the full update that began with the number `_full_since`."""
        self.is_complete = False
        """Whether a controller has sent all topics since the start."""
        self.version = 0
        """Grows when a topic is added, removed or gets partitions."""
        self.generation = 0
        """Grows with every update: while it is the same, values that were read from the cache are valid."""

    def __iter__(self) -> Iterator[Topic]:
        """Iterate over all topics in the order of their names."""
        return iter([self._topics[name] for name in sorted(self._topics)])

    def __contains__(self, name: str) -> bool:
        return name in self._topics

    def find(self, name: str) -> Topic | None:
        """Return the topic; None if this broker knows no topic of this name."""
        return self._topics.get(name)

    def has(self, partition: TopicPartition) -> bool:
        """Return whether this broker knows the partition."""
        return self.find_partition(partition) is not None

    def find_partition(self, name: TopicPartition) -> PartitionInfo | None:
        """Return the partition; None if this broker knows no such topic, or it has no such number."""
        topic = self._topics.get(name.topic)
        if topic is None or not 0 <= name.partition < len(topic.partitions):
            return None
        return topic.partitions[name.partition]

    def get(self, name: str) -> Topic:
        """Return the topic. Raises UnknownTopicOrPartition."""
        topic = self._topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"topic {name!r} does not exist")
        return topic

    def find_name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id; None if this broker knows none."""
        return self._names.get(topic_id)

    def find_by_id(self, topic_id: UUID | None) -> Topic | None:
        """Return the topic with this id; None if this broker knows none, or without an id."""
        return self._topics.get(self._names.get(topic_id, "")) if topic_id else None

    def get_by_id(self, topic_id: UUID) -> Topic:
        """Return the topic. Raises UnknownTopicId."""
        topic = self.find_by_id(topic_id)
        if topic is None:
            raise UnknownTopicId(f"there is no topic with the id {encode_id(topic_id)}")
        return topic

    # Brokers

    @property
    def controller(self) -> BrokerInfo | None:
        """The controller's broker; None if no controller is known or the known one is dead."""
        return self.brokers.get(self.controller_id)

    def leader_of(self, name: TopicPartition) -> BrokerInfo | None:
        """Return the partition's leader; None if no live broker leads it or there is no such partition."""
        info = self.find_partition(name)
        return self.brokers.get(info.leader) if info else None

    def current_leader(self, name: TopicPartition) -> CurrentLeader | None:
        """Return the partition's leader and leader epoch; None if no live broker leads it."""
        info = self.find_partition(name)
        leader = self.brokers.get(info.leader) if info else None
        return CurrentLeader(leader, info.leader_epoch) if info and leader else None

    def broker_overrides(self, broker_id: int) -> dict[str, str]:
        """Return a broker's keys that were changed at run time: those for all brokers, overridden by its own."""
        return {**self.overrides_given_to(ALL_BROKERS), **self.overrides_given_to(broker_id)}

    def overrides_given_to(self, broker_id: int) -> Mapping[str, str]:
        """Return the keys that were changed at run time for one broker, or for ALL_BROKERS."""
        return self._broker_overrides.get(broker_id, {})

    def brokers_with(self, key: str) -> list[int]:
        """Return the ids of the brokers, up or down, that have been given a value of `key` at run time."""
        known = {*self.brokers, *self._broker_overrides} - {ALL_BROKERS}
        return [broker_id for broker_id in sorted(known) if self.broker_overrides(broker_id).get(key)]

    # Changes

    def update(self, update: UpdateMetadata) -> MetadataChange:
        """Apply an update of the controller and return its changes.

        Raises StaleControllerEpoch, with nothing changed, if the update is from an earlier controller, or is a late
        copy: a later update has been applied.
        """
        told, seen = (update.controller_epoch, update.number), (self.controller_epoch, self._number)
        if told < seen:
            raise StaleControllerEpoch(f"controller epoch and request {told} are over: {seen} have been seen")
        self.generation += 1
        self._number = update.number
        self.controller_id, self.controller_epoch = update.controller_id, update.controller_epoch
        self.brokers = MappingProxyType(
            {info.broker_id: info for info in sorted(update.brokers, key=lambda info: info.broker_id)}
        )
        former_defaults = self._config.current.topic_defaults
        has_other_broker_keys = self._set_broker_overrides(update.broker_overrides)
        has_new_defaults = self._config.current.topic_defaults != former_defaults
        gone = list(update.deleted)
        named = self._all_topics(update)
        if named is not None:
            self.is_complete = True
            gone += [name for name in sorted(self._topics) if name not in named]
        removed = tuple(topic for name in gone if (topic := self._topics.get(name)))
        for topic in removed:
            self.remove(topic.name)
        put, rearranged = [], []
        reconfigured = self._reconfigure() if has_new_defaults else {}
        for state in update.topics:
            known = self._topics.get(state.name)
            put.append(topic := self._topic(state, known))
            self.put(topic)
            is_another = known is not None and known.topic_id == topic.topic_id and known.config != topic.config
            if is_another or has_new_defaults:  # its logs may have been opened with the former defaults
                reconfigured[topic.name] = topic
            if known is None or _arrangement(known) != _arrangement(topic):
                rearranged.append(topic)
        self._waiting.check(None)
        return MetadataChange(
            put=tuple(put), removed=removed, reconfigured=tuple(reconfigured.values()), rearranged=tuple(rearranged),
            has_other_broker_keys=has_other_broker_keys, is_full=named is not None,
        )  # fmt: skip

    def _all_topics(self, update: UpdateMetadata) -> set[str] | None:
        """Return the names of all topics, if the update is full or the last part of a full one; otherwise None."""
        names = {state.name for state in update.topics}
        if update.is_full:
            return names
        if update.begins_full:
            self._full_since, self._named = update.number, set()
        if not update.full_since or update.full_since != self._full_since:
            return None
        self._named |= names
        return self._named if update.ends_full else None

    def _set_broker_overrides(self, overrides: Mapping[int, Mapping[str, str]]) -> bool:
        """Apply the keys of brokers that were set at run time; return whether this broker's have changed."""
        self._broker_overrides = overrides
        own = self.overrides_given_to(self._config.started_with.broker_id)
        return self._config.set_overrides(self.overrides_given_to(ALL_BROKERS), own)

    def _reconfigure(self) -> dict[str, Topic]:
        """Apply the present defaults to each topic; return the topics whose configuration has changed, by name."""
        configs: dict[tuple[tuple[str, str], ...], TopicConfig] = {}
        """By overrides: thousands of topics have few different ones."""
        changed = {}
        for topic in self._topics.values():
            overrides = tuple(sorted(topic.overrides.items()))
            if overrides not in configs:
                configs[overrides] = config_of(topic.name, topic.overrides, self._config.current.topic_defaults)
            if configs[overrides] != topic.config:
                changed[topic.name] = replace(topic, config=configs[overrides])
        self._topics |= changed
        return changed

    async def wait_until(self, is_true: Callable[[], bool], timeout_ms: int) -> bool:
        """Return whether `is_true()` holds now or after an update within `timeout_ms`."""
        return await self._waiting.wait((None,), lambda: is_true() or None, timeout_ms) is not None

    def release(self) -> None:
        """End all waits and allow no new ones, because the broker stops."""
        self._waiting.release_all()

    def put(self, topic: Topic) -> None:
        """Add a topic, or replace the topic of its name, which may have another id."""
        self.generation += 1
        known = self._topics.get(topic.name)
        if known and known.topic_id != topic.topic_id:
            del self._names[known.topic_id]
        if not known or known.topic_id != topic.topic_id or len(known.partitions) != len(topic.partitions):
            self.version += 1
        self._topics[topic.name] = topic
        self._names[topic.topic_id] = topic.name

    def remove(self, name: str) -> None:
        """Forget a topic, if it is known."""
        if topic := self._topics.pop(name, None):
            del self._names[topic.topic_id]
            self.version += 1
            self.generation += 1

    def _topic(self, state: TopicState, known: Topic | None) -> Topic:
        is_configured = known is not None and known.overrides == state.overrides
        defaults = self._config.current.topic_defaults
        return Topic(
            name=state.name,
            topic_id=state.topic_id,
            partitions=state.partitions,
            overrides=state.overrides,
            config=known.config if known and is_configured else config_of(state.name, state.overrides, defaults),
        )


def is_led(topic: Topic) -> bool:
    """Return whether all partitions have a leader."""
    return all(info.leader != NO_LEADER for info in topic.partitions)


def _arrangement(topic: Topic) -> tuple[object, ...]:
    """Return the part of a topic that is kept in case the cluster store is lost."""
    assigned = [(info.replicas, info.adding, info.removing, not info.in_sync_replicas) for info in topic.partitions]
    return topic.topic_id, topic.overrides, assigned
