"""The generations that begin with a coordinator's records, for the cluster's history.

A classic group's generation is in the record with its members' assignments (0: none yet). If a static member returns
under a new member id (KIP-345), that record is written again with the same generation. A consumer group has a group
epoch instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from sparklog.group.consumer_group import ConsumerGroup
from sparklog.group.group import Group
from sparklog.offsets_topic.records import ConsumerGroupKey, ConsumerGroupValue, CoordinatorRecord, GroupKey, GroupValue


class Generation(Struct, frozen=True, kw_only=True):
    """A generation of a group at its start."""

    group_id: str
    group_type: str
    """classic or consumer."""
    number: int
    members: int


def generations(records: Iterable[CoordinatorRecord], groups: Mapping[str, Group]) -> Iterator[Generation]:
    """Yield the generations that begin with `records`. groups: after the replay of the records"""
    for record in records:
        key, value = record.key, record.value
        if isinstance(key, GroupKey) and isinstance(value, GroupValue) and value.generation:
            yield Generation(
                group_id=key.group_id, group_type="classic", number=value.generation, members=len(value.members)
            )
        elif isinstance(key, ConsumerGroupKey) and isinstance(value, ConsumerGroupValue):
            group = groups.get(key.group_id)
            yield Generation(
                group_id=key.group_id,
                group_type="consumer",
                number=value.epoch,
                members=len(group.members) if isinstance(group, ConsumerGroup) else 0,
            )
