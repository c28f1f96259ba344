"""The states of a classic group, and the table of their transitions.

    Empty                 no members; there may be committed offsets
    PreparingRebalance    the group waits for its members to join the next generation
    AwaitingSync          the members have joined, and the group waits for the leader's assignment. Kafka prints the
                          state as CompletingRebalance
    Stable                every member has its assignment
    Dead                  deleted; members get COORDINATOR_NOT_AVAILABLE, and look for the coordinator again

A new group is Empty. A group that is read from the log is Stable if it has members, otherwise Empty.
`python -m sparklog.group.states` prints the table as the documentation shows it.
"""

from __future__ import annotations

import sys
from enum import Enum

from sparklog.base.errors import SparklogError


class GroupState(Enum):
    """The state of a classic group; the value is the name that Kafka prints."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    AWAITING_SYNC = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupEvent(Enum):
    REBALANCE_STARTED = "a member joins, leaves, fails or changes"
    MEMBERS_JOINED = "the members that came have joined"
    NOBODY_JOINED = "no member is left"
    ASSIGNED = "the leader's assignment is written"
    DELETED = "the group is deleted"


EMPTY, PREPARING_REBALANCE, AWAITING_SYNC, STABLE, DEAD = GroupState

TRANSITIONS: dict[tuple[GroupState, GroupEvent], GroupState] = {
    (EMPTY, GroupEvent.REBALANCE_STARTED): PREPARING_REBALANCE,
    (EMPTY, GroupEvent.DELETED): DEAD,
    (PREPARING_REBALANCE, GroupEvent.MEMBERS_JOINED): AWAITING_SYNC,
    (PREPARING_REBALANCE, GroupEvent.NOBODY_JOINED): EMPTY,
    (PREPARING_REBALANCE, GroupEvent.DELETED): DEAD,
    (AWAITING_SYNC, GroupEvent.ASSIGNED): STABLE,
    (AWAITING_SYNC, GroupEvent.REBALANCE_STARTED): PREPARING_REBALANCE,
    (AWAITING_SYNC, GroupEvent.DELETED): DEAD,
    (STABLE, GroupEvent.REBALANCE_STARTED): PREPARING_REBALANCE,
    (STABLE, GroupEvent.DELETED): DEAD,
    (DEAD, GroupEvent.DELETED): DEAD,
}


class IllegalGroupTransition(SparklogError):
    """An event that cannot happen in the group's state: a bug in the coordinator."""


def next_state(state: GroupState, event: GroupEvent) -> GroupState:
    """Return the state after an event. Raises IllegalGroupTransition if the table has no such transition."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalGroupTransition(f"{event.name} in the state {state.value}") from None


def print_table() -> str:
    """Return the transitions as a Markdown table."""
    lines = ["| State | when | becomes |", "| --- | --- | --- |"]
    lines += [f"| {state.value} | {event.value} | {target.value} |" for (state, event), target in TRANSITIONS.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(print_table())
