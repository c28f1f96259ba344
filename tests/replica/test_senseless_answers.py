"""Senseless responses of a leader: the follower logs them, pauses, and continues."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from sparklog.replica.messages import ReplicaFetchResponse
from support.replicas.replicating_brokers import World, run


@pytest.mark.parametrize("spoilt", [{"partitions": None}, {"partitions": (None,)}])
def test_a_follower_copies_on_after_an_answer_that_makes_no_sense(
    spoilt: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def test(world: World) -> None:
        left = 3

        def spoil(response: ReplicaFetchResponse) -> ReplicaFetchResponse:
            nonlocal left
            left -= 1
            return replace(response, **spoilt) if left >= 0 else response

        for broker_id in (1, 2, 3):
            world.start(broker_id)
        world.spoil = spoil
        await world.lead(1, (1, 2, 3))
        world.brokers[1].append(3)
        await world.settle()
        assert left < 0
        world.check_equal()

    run(test)
    assert [record.exc_info is not None for record in caplog.records if "could not be asked" in record.message] == [
        True
    ] * 3
