"""The cluster store of a simulation, and what in it decides how much may be lost: unclean elections."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from sparklog.base.ids import TopicPartition
from sparklog.cluster.memory import MemoryTree
from sparklog.cluster.store import Operation, Set
from sparklog.testing.sim_history import UncleanElection

_STATE = re.compile("/brokers/topics/([^/]+)/partitions/([0-9]+)/state")


class ObservedTree(MemoryTree):
    """A store that sees who is elected. `log_end` tells where the log of a broker's replica ends, as far as known."""

    def __init__(self, log_end: Callable[[TopicPartition, int], int]) -> None:
        super().__init__()
        self.unclean: dict[TopicPartition, list[UncleanElection]] = {}
        self._log_end = log_end

    def change(self, operations: Iterable[Operation], session_id: int) -> None:
        operations = list(operations)
        states = [(each.path, self._state(each.path)) for each in operations if isinstance(each, Set)]
        super().change(operations, session_id)
        for path, before in states:
            if before is not None and (after := self._state(path)) is not None:
                self._compare(path, before, after)

    def _state(self, path: str) -> dict[str, Any] | None:
        node = self.find(path) if _STATE.fullmatch(path) else None
        return json.loads(node.data) if node else None

    def _compare(self, path: str, before: dict[str, Any], after: dict[str, Any]) -> None:
        leader = after["leader"]
        if leader < 0 or leader in before["isr"]:
            return
        found = _STATE.fullmatch(path)
        assert found
        name = TopicPartition(found[1], int(found[2]))
        election = UncleanElection(self._log_end(name, leader), after["leader_epoch"])
        self.unclean.setdefault(name, []).append(election)
