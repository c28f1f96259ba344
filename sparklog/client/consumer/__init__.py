"""The consumer: partitions fetched ahead of `poll`, and its part in a group that shares them."""
