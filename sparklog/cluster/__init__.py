"""What brokers agree on: a store with ZooKeeper's semantics, and the topics kept in it."""
