"""The input of an assignor."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from msgspec import Struct, field

Partitions = Mapping[UUID, frozenset[int]]
"""Partitions by the id of their topic; each topic has at least one partition."""


class MemberSpec(Struct, frozen=True, kw_only=True):
    """One member: the topics that it is subscribed to, and its partitions in the present target assignment."""

    topics: frozenset[UUID]
    instance_id: str | None = None
    partitions: Partitions = field(default_factory=dict)


class GroupSpec(Struct, frozen=True, kw_only=True):
    """A group, with the partition counts of all existing topics that a member is subscribed to."""

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[UUID, int]

    def subscribers(self) -> dict[UUID, list[str]]:
        """Return member ids by topic, both sorted; only topics that exist."""
        found: dict[UUID, list[str]] = {}
        for member_id in sorted(self.members):
            for topic in self.members[member_id].topics:
                if topic in self.partition_counts:
                    found.setdefault(topic, []).append(member_id)
        return {topic: found[topic] for topic in sorted(found)}
