"""The assignors that a group's leader can use, by the names that members send to agree on one."""

from __future__ import annotations

from types import MappingProxyType

from sparklog.client.assignors.assignor import Assignor, Member
from sparklog.client.assignors.range import RANGE
from sparklog.client.assignors.round_robin import ROUND_ROBIN
from sparklog.client.assignors.sticky import COOPERATIVE_STICKY, STICKY

__all__ = ["ASSIGNORS", "Assignor", "Member"]

ASSIGNORS = MappingProxyType({assignor.name: assignor for assignor in (RANGE, ROUND_ROBIN, STICKY, COOPERATIVE_STICKY)})
