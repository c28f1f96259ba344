"""Common parts of the coordinators: the led partitions of an internal topic, each with a shard of state."""
