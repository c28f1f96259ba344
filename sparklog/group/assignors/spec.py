"""What an assignor is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

Partitions = Mapping[UUID, frozenset[int]]
"""Partitions by the id of their topic; no topic is without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSpec:
    """One member: what it is subscribed to, and what the target assignment gives it now."""

    topics: frozenset[UUID]
    instance_id: str | None = None
    partitions: Partitions = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """A group, with the partition counts of all topics that somebody is subscribed to and that exist."""

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[UUID, int]

    def subscribers(self) -> dict[UUID, list[str]]:
        """Members by topic, both in their order; only topics that exist."""
        found: dict[UUID, list[str]] = {}
        for member_id in sorted(self.members):
            for topic in self.members[member_id].topics:
                if topic in self.partition_counts:
                    found.setdefault(topic, []).append(member_id)
        return {topic: found[topic] for topic in sorted(found)}
