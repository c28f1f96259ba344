"""A broker deletes replicas that have moved to other brokers after a full update."""

from __future__ import annotations

import pytest
from msgspec import structs

from sparklog.base.errors import StaleBrokerEpoch
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import update_metadata
from sparklog.cluster.messages import TopicState, UpdateMetadata
from support.brokers.on_one_loop import BrokersOnOneLoop
from support.patience import PATIENCE_MS

T0 = TopicPartition("t", 0)


async def test_a_stray_is_deleted_after_later_updates_too() -> None:
    cluster = BrokersOnOneLoop()
    await cluster.start(1, 2)
    services = cluster.brokers[2].services
    known = cluster.brokers[1].services.metadata
    assert await known.wait_until(lambda: 2 in known.brokers, PATIENCE_MS)
    await cluster.create("t", [[1, 2]])
    await cluster.until_led(T0, 1, isr={1, 2})
    assert await services.metadata.wait_until(lambda: services.replicas.find(T0) is not None, PATIENCE_MS)
    topic = services.metadata.get("t")
    moved = structs.replace(topic.partitions[0], replicas=(1,), in_sync_replicas=(1,))
    everything = UpdateMetadata(
        controller_id=1,
        controller_epoch=1,
        broker_epoch=services.registration.epoch,
        brokers=tuple(services.metadata.brokers.values()),
        topics=(TopicState(name="t", topic_id=topic.topic_id, partitions=(moved,), overrides={}),),
        is_full=True,
        number=1_000,
    )

    epoch, services.registration.epoch = services.registration.epoch, -1  # as before it has registered
    with pytest.raises(StaleBrokerEpoch):
        await cluster.brokers[2].serve(update_metadata.API, everything)
    assert services.replicas.find(T0) is not None

    services.registration.epoch = epoch
    await cluster.brokers[2].serve(update_metadata.API, everything)

    assert services.replicas.find(T0) is None
    assert str(T0) not in cluster.folders(2)
    await cluster.stop_all()
