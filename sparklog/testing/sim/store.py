"""The cluster store of a simulation: the SQLite tables of the embedded store, kept in memory.

It records unclean elections, and in-sync brokers that are not replicas.

The checker must know of unclean elections, which may lose records. Every in-sync broker must be a replica: a broker
that is no replica deletes its log, though acks=all waits for it. The only exception is a broker that alone is in sync:
it keeps its log.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Self

from sparklog.base.ids import TopicPartition
from sparklog.cluster.memory import MemoryTree, Nodes
from sparklog.cluster.sqlite_tree import IN_MEMORY, SqliteTree
from sparklog.cluster.store import Operation, Set
from sparklog.cluster.watches import NodeChange
from sparklog.log.epochs import LeaderEpochs
from sparklog.testing.sim.checks.history import UncleanElection

_STATE = re.compile("/brokers/topics/([^/]+)/partitions/([0-9]+)/state")
_TOPIC = re.compile("/brokers/topics/([^/]+)")


class ReplicaEnd(NamedTuple):
    """The leader epochs and the end offset of a replica's log.

    `is_leading`: whether the broker may still append as leader, because it does not know yet that another leader was
    elected.
    """

    epochs: LeaderEpochs
    end: int
    is_leading: bool = False


def first_missing_offset(leader: ReplicaEnd, others: Iterable[ReplicaEnd]) -> int:
    """Return the first offset at which another replica has, or may still append, a record that the leader lacks.

    Records of the same leader epoch are equal in all logs. If there is no such record below the leader's end offset,
    return that end offset.
    """
    return min((leader.end, *(_divergence_offset(leader, other) for other in others)))


def _divergence_offset(leader: ReplicaEnd, other: ReplicaEnd) -> int:
    """Return the offset at which the other log departs from the leader's; without one, the leader's end offset."""
    mine, theirs = dict(leader.epochs.entries), dict(other.epochs.entries)
    starts = [mine.get(epoch, theirs.get(epoch, 0)) for epoch in mine.keys() ^ theirs.keys()]
    at = min((leader.end, *starts))
    if other.is_leading:
        return min(at, other.end)
    return at if other.end > at else leader.end


class ObservedTree(MemoryTree):
    """A store that observes each change of a partition's leader and ISR.

    `log_end` takes a partition, the new leader and the former leader. It returns the offset below which the new leader
    has all records that the other replicas have.
    """

    def __init__(self, nodes: Nodes, log_end: Callable[[TopicPartition, int, int], int]) -> None:
        super().__init__(nodes)
        self.unclean: dict[TopicPartition, list[UncleanElection]] = {}
        """The unclean elections of each partition, oldest first."""
        self.outsiders: set[tuple[TopicPartition, int]] = set()
        """Each partition and broker that was in an ISR of several brokers without being a replica."""
        self._log_end = log_end

    def change(self, operations: Iterable[Operation], session_id: int) -> None:
        """Make the changes as MemoryTree does, and note unclean elections and outsiders."""
        operations = list(operations)
        states = [(each.path, self._state(each.path)) for each in operations if isinstance(each, Set)]
        super().change(operations, session_id)
        for path, before in states:
            if before is not None and (after := self._state(path)) is not None:
                self._compare(path, before, after)
        for topic in {found[1] for each in operations if (found := _TOPIC.match(each.path))}:
            self._look_for_outsiders(topic)

    def _look_for_outsiders(self, topic: str) -> None:
        node = self.find(f"/brokers/topics/{topic}")
        for number, replicas in json.loads(node.data)["partitions"].items() if node else ():
            state = self._state(f"/brokers/topics/{topic}/partitions/{number}/state")
            if state and len(state["isr"]) > 1:
                name = TopicPartition(topic, int(number))
                self.outsiders |= {(name, broker) for broker in state["isr"] if broker not in replicas}

    def _state(self, path: str) -> dict[str, Any] | None:
        node = self.find(path) if _STATE.fullmatch(path) else None
        return json.loads(node.data) if node else None

    def _adding(self, name: TopicPartition) -> Sequence[int]:
        """Return the replicas that a reassignment adds to the partition."""
        node = self.find(f"/brokers/topics/{name.topic}")
        return json.loads(node.data)["adding_replicas"].get(str(name.partition), ()) if node else ()

    def _compare(self, path: str, before: dict[str, Any], after: dict[str, Any]) -> None:
        leader = after["leader"]
        if leader < 0 or not before["isr"] or leader in before["isr"]:
            return  # without in-sync replicas it was restored, and the leader has all acknowledged records
        found = _STATE.fullmatch(path)
        assert found
        name = TopicPartition(found[1], int(found[2]))
        is_added = leader in self._adding(name)  # it may be about to delete the log of an earlier time
        from_offset = 0 if is_added else self._log_end(name, leader, before["leader"])
        election = UncleanElection(from_offset, after["leader_epoch"])
        self.unclean.setdefault(name, []).append(election)


class SqliteNodes(SqliteTree):
    """The embedded store's SQL on a database in memory. Implements Nodes."""

    @classmethod
    def create(cls) -> Self:
        """Return an empty tree."""
        return cls.open(IN_MEMORY, busy_timeout_s=1)

    def copy(self) -> bytes:
        """Return the database as the bytes of its file."""
        return self._db.serialize()

    def go_back(self, copy: bytes) -> None:
        """Replace the database with a copy of its earlier state."""
        self._db.deserialize(copy)

    def apply(self, operations: Sequence[Operation], session_id: int) -> list[NodeChange]:
        with self.writing():
            return super().apply(operations, session_id)
