"""The generations that groups begin: which of a coordinator's records say that one has.

A classic group's stands in the record that its members' assignments are in (0: it has had none); a new member under
the name of an old one (KIP-345) has that record written again, in the same generation. A group of the consumer protocol
has an epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sparklog.group.consumer_group import ConsumerGroup
from sparklog.group.group import Group
from sparklog.group.records import ConsumerGroupKey, ConsumerGroupValue, CoordinatorRecord, GroupKey, GroupValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One that has begun."""

    group_id: str
    group_type: str
    """classic or consumer."""
    number: int
    members: int


def generations(records: Iterable[CoordinatorRecord], groups: Mapping[str, Group]) -> Iterator[Generation]:
    """Those that `records` begin; `groups` are as the records have left them."""
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
