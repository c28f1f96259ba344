"""The states of partitions and replicas in the controller, and the tables of their transitions.

    partition   NonExistent   it does not exist, or was deleted
                New           it has replicas, but has never had a leader
                Online        it has a leader
                Offline       it has had a leader, and has none now
    replica     New           its partition is being created or reassigned; it cannot be elected
                Online        its broker has been informed of it; it can be elected
                Offline       its broker is down, or was told to stop it, or its disk has failed
                DeletionStarted       its broker was told to delete it
                DeletionSuccessful    its broker has deleted it
                DeletionIneligible    it cannot be deleted now: its broker is down or has failed to delete it. The
                                      deletion is tried again
                NonExistent   it was deleted

A transition that is not in its table raises IllegalMove, and changes nothing. `python -m sparklog.controller.states`
prints both tables and their diagrams, as docs/concepts/controller.md shows them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

from sparklog.base.errors import SparklogError


class PartitionState(Enum):
    """The value is what Kafka prints."""

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


class ReplicaState(Enum):
    """The value is what Kafka prints."""

    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


_P, _R = PartitionState, ReplicaState
_ELECTED = "a leader is elected among the replicas, and written; LeaderAndIsr to the live ones"
_STOPPED = "the broker stops the replica; it leaves the ISR, unless it is the only member; LeaderAndIsr to the others"
_NOTHING = "nothing but the state changes"

PARTITION_MOVES: dict[tuple[PartitionState, PartitionState], str] = {
    (_P.NON_EXISTENT, _P.NEW): _NOTHING,
    (_P.NEW, _P.ONLINE): "the first live replica leads, all live ones are in sync; written; LeaderAndIsr to them",
    (_P.NEW, _P.OFFLINE): _NOTHING,
    (_P.ONLINE, _P.ONLINE): _ELECTED,
    (_P.ONLINE, _P.OFFLINE): _NOTHING,
    (_P.OFFLINE, _P.ONLINE): _ELECTED,
    (_P.OFFLINE, _P.OFFLINE): _NOTHING,
    (_P.OFFLINE, _P.NON_EXISTENT): _NOTHING,
}

REPLICA_MOVES: dict[tuple[ReplicaState, ReplicaState], str] = {
    (_R.NON_EXISTENT, _R.NEW): "LeaderAndIsr to the broker, if there is a leader: it begins to follow",
    (_R.NEW, _R.ONLINE): _NOTHING,
    (_R.NEW, _R.OFFLINE): _STOPPED,
    (_R.ONLINE, _R.ONLINE): "LeaderAndIsr to the broker",
    (_R.ONLINE, _R.OFFLINE): _STOPPED,
    (_R.OFFLINE, _R.ONLINE): "LeaderAndIsr to the broker",
    (_R.OFFLINE, _R.OFFLINE): _STOPPED,
    (_R.OFFLINE, _R.DELETION_STARTED): "StopReplica to the broker, with deletion",
    (_R.OFFLINE, _R.DELETION_INELIGIBLE): _NOTHING,
    (_R.DELETION_STARTED, _R.DELETION_SUCCESSFUL): _NOTHING,
    (_R.DELETION_STARTED, _R.DELETION_INELIGIBLE): _NOTHING,
    (_R.DELETION_INELIGIBLE, _R.ONLINE): "LeaderAndIsr to the broker",
    (_R.DELETION_INELIGIBLE, _R.OFFLINE): _STOPPED,
    (_R.DELETION_SUCCESSFUL, _R.NON_EXISTENT): "the replica is no longer in the assignment",
}

S = TypeVar("S", PartitionState, ReplicaState)


class IllegalMove(SparklogError):
    """A transition of a partition or a replica is not allowed: a bug in the controller."""


def check_moves(moves: Mapping[tuple[S, S], str], things: Mapping[Any, S], target: S) -> None:
    """Raise IllegalMove if one of `things`, given with their states, cannot move to `target`."""
    for thing, state in things.items():
        if (state, target) not in moves:
            raise IllegalMove(f"{thing} cannot become {target.value}: it is {state.value}")


def print_table(moves: Mapping[tuple[S, S], str]) -> str:
    """Return the transitions as a Markdown table."""
    lines = ["| From | to | what happens |", "| --- | --- | --- |"]
    lines += [f"| {state.value} | {target.value} | {what} |" for (state, target), what in moves.items()]
    return "\n".join(lines) + "\n"


def print_diagram(moves: Mapping[tuple[S, S], str]) -> str:
    """Return the transitions as a Mermaid diagram, without those from a state to itself."""
    arrows: list[str] = [f"    {state.value} --> {target.value}" for state, target in moves if state is not target]
    return "\n".join(["```mermaid", "stateDiagram-v2", *arrows, "```"]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(print_diagram(PARTITION_MOVES) + "\n" + print_table(PARTITION_MOVES) + "\n")
    sys.stdout.write(print_diagram(REPLICA_MOVES) + "\n" + print_table(REPLICA_MOVES))
