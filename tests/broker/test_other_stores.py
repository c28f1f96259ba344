"""Controllers of a cluster store that was lost: brokers refuse what such a controller still asks for."""

from __future__ import annotations

from typing import Any

import pytest

from sparklog.base.errors import InconsistentClusterId
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.apis import leader_and_isr, update_metadata
from sparklog.cluster.messages import UpdateMetadata
from sparklog.replica.messages import LEADER_EPOCH_DURING_DELETE, LeaderAndIsr, StopPartition, StopReplica
from support.brokers.on_one_loop import BrokersOnOneLoop
from support.patience import PATIENCE_MS

T0 = TopicPartition("t", 0)
LATER = {"controller_id": 7, "controller_epoch": 1_000, "broker_epoch": 1_000, "number": 1_000}
"""What makes a request newer than any that the broker has seen."""
REQUESTS: list[tuple[Api[Any, Any], type, dict[str, Any]]] = [
    (update_metadata.API, UpdateMetadata, {"brokers": (), "is_full": True}),
    (leader_and_isr.LEADER_AND_ISR, LeaderAndIsr, {"partitions": (), "overrides": {}}),
    (
        leader_and_isr.STOP_REPLICA,
        StopReplica,
        {"partitions": (StopPartition(name=T0, leader_epoch=LEADER_EPOCH_DURING_DELETE, delete=True),)},
    ),
]


@pytest.mark.parametrize(("api", "kind", "fields"), REQUESTS)
async def test_a_request_of_another_store_changes_nothing(
    api: Api[Any, Any], kind: type, fields: dict[str, Any]
) -> None:
    cluster = BrokersOnOneLoop()
    await cluster.start(1, 2)
    await cluster.create("t", [[1, 2]])
    await cluster.until_led(T0, 1, isr={1, 2})
    with pytest.raises(InconsistentClusterId, match="lost"):
        await cluster.brokers[2].serve(api, kind(**LATER, **fields, store_id="lost"))

    await cluster.create("u", [[2, 1]])  # the present controller is still obeyed
    await cluster.until_led(TopicPartition("u", 0), 2, isr={1, 2})
    services = cluster.brokers[2].services
    assert await services.metadata.wait_until(lambda: {*services.metadata.brokers} == {1, 2}, PATIENCE_MS)
    assert services.replicas.find(T0) is not None
    await cluster.stop_all()
