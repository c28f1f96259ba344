"""The lives of brokers that count: whose replicas may be in sync.

    /brokers/epochs   {"version": 1, "epochs": {"1": 17, "2": 23}}

The controller writes it. It takes a broker out when it sees that this life of it is over, before it takes the broker's
replicas out of the ISRs; it puts the next life in when that is done. So:

- A leader that lets a broker into an ISR checks the node in the same transaction: no life that is over can get in
  behind the controller's back.
- A controller that is elected treats a broker that is alive but not in here, or with another epoch, as one that has
  failed and come back: what it may have lost when it failed is not taken from it. Apache Kafka does not know this:
  there a controller that fails together with a leader trusts the leader's next life as if nothing had happened.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from sparklog.base.errors import NoNode
from sparklog.cluster.store import Check, Create, Operation, Set, Store

BROKER_EPOCHS = "/brokers/epochs"
NOT_WRITTEN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEpochs:
    """What the node says."""

    epochs: Mapping[int, int] = field(default_factory=dict)
    version: int = NOT_WRITTEN

    @property
    def unchanged(self) -> Check:
        """In `multi`: it says so still."""
        return Check(BROKER_EPOCHS, self.version)

    def write(self, epochs: Mapping[int, int]) -> Operation:
        """In `multi`: what it is to say from now on. Only the controller writes it."""
        named = {str(broker_id): epochs[broker_id] for broker_id in sorted(epochs)}
        data = json.dumps({"version": 1, "epochs": named}, separators=(",", ":")).encode()
        return Create(BROKER_EPOCHS, data) if self.version == NOT_WRITTEN else Set(BROKER_EPOCHS, data, self.version)


def read_broker_epochs(store: Store) -> BrokerEpochs:
    """No life counts where no controller has been yet."""
    try:
        node = store.get(BROKER_EPOCHS)
    except NoNode:
        return BrokerEpochs()
    epochs = {int(broker_id): epoch for broker_id, epoch in json.loads(node.data)["epochs"].items()}
    return BrokerEpochs(epochs=epochs, version=node.version)
