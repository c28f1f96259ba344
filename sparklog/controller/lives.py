"""Which lives of brokers may be in sync, as it is written for the leaders that let them (`cluster/broker_epochs.py`).

One that is shutting down may not: it would be gone before the leader that had let it in again notices.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.cluster.broker_epochs import read_broker_epochs
from sparklog.cluster.model import BrokerInfo
from sparklog.controller.parts import Parts


async def let_count(parts: Parts, brokers: Mapping[int, BrokerInfo]) -> None:
    """These, but for those that are shutting down, and no others, from now on."""
    shutting_down = parts.context.shutting_down
    epochs = {broker_id: info.epoch for broker_id, info in brokers.items() if broker_id not in shutting_down}
    lives = await parts.store.read(read_broker_epochs)
    if epochs != lives.epochs:
        await parts.store.multi([lives.write(epochs)])
