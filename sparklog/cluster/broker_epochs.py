"""Published broker epochs: the brokers whose replicas may be in sync.

    /brokers/epochs   {"version": 1, "epochs": {"1": 17, "2": 23}, "stopping": [2]}

The controller writes the node. When a broker epoch has ended, it first removes the epoch here, then the broker's
replicas from the ISRs, and then adds the broker's next epoch. So:

- A leader that adds a broker to an ISR checks the node in the same transaction. A broker epoch that has ended cannot
  get into an ISR without the controller's knowledge.
- A newly elected controller treats a live broker that is missing here, or has another epoch here, as failed and
  restarted: the broker may have lost records. Apache Kafka does not do this: if a controller fails together with a
  leader, the restarted leader still counts as in sync.
- A broker that is shutting down stays here, so a newly elected controller knows that it has lost nothing. But no leader
  adds it to an ISR.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from msgspec import Struct, field

from sparklog.cluster.store import Check, Create, Operation, Set, Store, encode_json, find_node

BROKER_EPOCHS = "/brokers/epochs"
NOT_WRITTEN = -1


class BrokerEpochs(Struct, frozen=True, kw_only=True):
    """The content of the node."""

    epochs: Mapping[int, int] = field(default_factory=dict)
    stopping: frozenset[int] = frozenset()
    """The brokers that are shutting down."""
    version: int = NOT_WRITTEN

    @property
    def unchanged(self) -> Check:
        """The operation of `multi` that checks that the node is unchanged."""
        return Check(BROKER_EPOCHS, self.version)

    def write(self, epochs: Mapping[int, int], stopping: Collection[int] = ()) -> Operation:
        """Return the operation of `multi` that writes these epochs; for the controller only."""
        named = {str(broker_id): epochs[broker_id] for broker_id in sorted(epochs)}
        data = encode_json({"version": 1, "epochs": named, "stopping": sorted(stopping)})
        return Create(BROKER_EPOCHS, data) if self.version == NOT_WRITTEN else Set(BROKER_EPOCHS, data, self.version)


def read_broker_epochs(store: Store) -> BrokerEpochs:
    """Return the published epochs; none if there has been no controller yet."""
    node = find_node(store, BROKER_EPOCHS)
    if node is None:
        return BrokerEpochs()
    content = json.loads(node.data)
    epochs = {int(broker_id): epoch for broker_id, epoch in content["epochs"].items()}
    return BrokerEpochs(epochs=epochs, stopping=frozenset(content.get("stopping", ())), version=node.version)
