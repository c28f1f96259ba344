"""The state that brokers share: a store with ZooKeeper's semantics, and the cluster's topics in it."""
