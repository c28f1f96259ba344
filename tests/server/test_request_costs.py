"""What requests cost per byte, of every API of both listeners: those that were found to cost most, and a search for
worse ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from sparklog.group.coordinator import GroupCoordinator
from sparklog.group.requests import ListGroups, ListGroupsResponse
from support.fuzzing.listeners import subjects
from support.fuzzing.search import Brokers, Found, confirm, excess, search
from support.fuzzing.shapes import Shape
from support.runs.seeds import SEED

SUBJECTS = subjects()
SEARCHED_S = 10
PLANTED_S = 60
WORST = [
    ("CreateTopics", "v7 s353447 topics*500numbered"),
]
"""Of each kind, what a search found to cost most."""


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    found = Brokers()
    yield found
    found.close()


@pytest.mark.parametrize(("name", "shape"), WORST, ids=[name for name, _ in WORST])
def test_no_request_costs_more_than_its_bytes_are_worth(brokers: Brokers, name: str, shape: str) -> None:
    found = confirm(SUBJECTS[name], brokers, Found(name, Shape.parse(shape)))

    assert found.cost
    assert not excess(found)


def test_a_handler_that_compares_all_with_all_is_found(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    list_groups = GroupCoordinator.list

    async def planted(self: GroupCoordinator, request: ListGroups) -> ListGroupsResponse:
        assert sum(one == other for one in request.states for other in request.states) >= len(request.states)
        return await list_groups(self, request)

    monkeypatch.setattr(GroupCoordinator, "list", planted)

    found = search(SUBJECTS["ListGroups"], brokers, Random(0), PLANTED_S, until=excess)

    assert any("us of processor time per byte" in excess(each) for each in found)
    monkeypatch.undo()
    assert not any(excess(confirm(SUBJECTS["ListGroups"], brokers, each)) for each in found)


@pytest.mark.soak_only
@pytest.mark.parametrize("name", SUBJECTS)
def test_no_search_finds_a_request_that_costs_too_much(brokers: Brokers, name: str) -> None:
    for found in search(SUBJECTS[name], brokers, Random(f"{SEED} {name}"), SEARCHED_S):
        if excess(found):
            assert not excess(confirm(SUBJECTS[name], brokers, found))
