"""Publication of the epochs of brokers whose replicas may be in sync; leaders check them (`cluster/broker_epochs.py`).

A broker that is shutting down is left out: a leader that added it to an ISR again would not notice its end in time.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.cluster.broker_epochs import read_broker_epochs
from sparklog.cluster.model import BrokerInfo
from sparklog.controller.dependencies import ControllerDependencies


async def publish_broker_epochs(dependencies: ControllerDependencies, brokers: Mapping[int, BrokerInfo]) -> None:
    """Publish these brokers' epochs, except those shutting down."""
    shutting_down = dependencies.context.shutting_down
    epochs = {broker_id: info.epoch for broker_id, info in brokers.items() if broker_id not in shutting_down}
    published = await dependencies.store.read(read_broker_epochs)
    if epochs != published.epochs:
        await dependencies.store.multi([published.write(epochs)])
