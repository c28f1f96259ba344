"""The consumer: fetches partitions ahead of `poll`, and shares them with the other members of its group."""
