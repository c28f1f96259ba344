"""Server-side assignors: who should read what, by name; the table is what a member can ask for.

An assignor is a pure function of a `GroupSpec`: members with the topics they are subscribed to, the partition counts
of those topics, and the target assignment before. It returns for every member its partitions by topic. A topic that
has no partition count does not exist and is left out, whoever is subscribed to it. Equal specs give equal results.
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
