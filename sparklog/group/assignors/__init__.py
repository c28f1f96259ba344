"""Server-side assignors, by name: they assign partitions to the members of a group. A member can ask for one of these.

An assignor is a pure function of a `GroupSpec`: members with the topics that they are subscribed to, the partition
counts of those topics, and the previous target assignment. It returns each member's partitions by topic. A topic
without a partition count does not exist, and is left out. Equal specs give equal results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from sparklog.group.assignors.range import assign_range
from sparklog.group.assignors.spec import GroupSpec, Partitions
from sparklog.group.assignors.uniform import assign_uniform

Assignor = Callable[[GroupSpec], Mapping[str, Partitions]]

ASSIGNORS: Mapping[str, Assignor] = MappingProxyType({"uniform": assign_uniform, "range": assign_range})
"""The names of group.consumer.assignors."""

__all__ = ["ASSIGNORS", "Assignor", "GroupSpec", "Partitions"]
