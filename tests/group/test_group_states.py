"""The table of a classic group's states."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from sparklog.group.classic_group import ClassicGroup
from sparklog.group.states import (
    DEAD,
    TRANSITIONS,
    GroupEvent,
    GroupState,
    IllegalGroupTransition,
    next_state,
    print_table,
)

ILLEGAL = [pair for pair in product(GroupState, GroupEvent) if pair not in TRANSITIONS]


@pytest.mark.parametrize(("state", "event"), ILLEGAL, ids=lambda each: each.name)
def test_what_is_not_in_the_table_raises_and_changes_nothing(state: GroupState, event: GroupEvent) -> None:
    group = ClassicGroup(group_id="g", state=state, state_timestamp_ms=7)

    with pytest.raises(IllegalGroupTransition, match=event.name):
        group.move(event, 8)

    assert (group.state, group.state_timestamp_ms) == (state, 7)


def test_every_state_can_be_left_for_dead() -> None:
    assert {next_state(state, GroupEvent.DELETED) for state in GroupState} == {DEAD}


def test_the_documentation_shows_the_table_with_kafka_s_names() -> None:
    documentation = Path(__file__).parents[2] / "docs" / "concepts" / "groups.md"

    assert print_table() in documentation.read_text()
    assert "| PreparingRebalance | the members that came have joined | CompletingRebalance |" in print_table()
