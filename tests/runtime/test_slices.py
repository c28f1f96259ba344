"""Slices of one event loop whose time is used up."""

from __future__ import annotations

import asyncio

import pytest

from sparklog.runtime import slices
from sparklog.runtime.slices import Slices


@pytest.mark.parametrize(("slice_s", "most"), [(0, 1), (3_600, 7)])
async def test_requests_that_arrive_together_begin_one_by_one_once_the_slice_is_over(
    monkeypatch: pytest.MonkeyPatch, slice_s: int, most: int
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", slice_s)
    shared, begun, per_turn = Slices(), 0, []

    async def request() -> None:
        nonlocal begun
        await shared.begin()
        begun += 1

    requests = [asyncio.create_task(request()) for _ in range(7)]
    while begun < len(requests):
        before = begun
        await asyncio.sleep(0)
        per_turn.append(begun - before)
    assert max(per_turn) == most
