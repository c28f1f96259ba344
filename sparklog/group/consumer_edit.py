"""A working copy of a group, to which a decision adds one record after the other.

A decision about a group of the new protocol has several steps, each of which builds on the one before: a member's new
subscription leads to a new epoch, the epoch to a new target, the target to a new assignment. A step writes its records
here. They go to the draft, and are replayed into a copy of the group by the same `replay` that later changes the group
itself.
"""

from __future__ import annotations

from sparklog.group.consumer_group import ConsumerGroup
from sparklog.group.group import Work
from sparklog.offsets_topic.records import CoordinatorRecord, Key, Value


class GroupEdit:
    """A group being edited. `group` is the original until the first record, then a copy with all records replayed."""

    def __init__(self, group: ConsumerGroup, draft: Work) -> None:
        self.base = group
        self.group = group
        self.draft = draft

    def write(self, key: Key, value: Value | None = None) -> None:
        """Add a record; without a value, a tombstone."""
        if self.group is self.base:
            self.group = self.base.copy()
        record = CoordinatorRecord(key, value)
        self.draft.records.append(record)
        self.group.replay(record)
