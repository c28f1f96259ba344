"""A group as it will be: what a decision works on while it adds one record after the other.

Decisions on groups of the new protocol have several steps, each of which builds on the one before: a member's new
subscription gives a new epoch, that a new target, that a new assignment. A step writes its records here; they go to
the draft, and are replayed into a copy of the group, by the same `replay` that will change the group itself.
"""

from __future__ import annotations

from sparklog.group.consumer_group import ConsumerGroup
from sparklog.group.group import Work
from sparklog.group.records import CoordinatorRecord, Key, Value


class GroupEdit:
    """`group` is the group itself until the first record, then a copy with all records replayed."""

    def __init__(self, group: ConsumerGroup, draft: Work) -> None:
        self.base = group
        self.group = group
        self.draft = draft

    def write(self, key: Key, value: Value | None = None) -> None:
        """Without a value: a tombstone."""
        if self.group is self.base:
            self.group = self.base.copy()
        record = CoordinatorRecord(key, value)
        self.draft.records.append(record)
        self.group.replay(record)
