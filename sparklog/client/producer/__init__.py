"""The producer: records gathered in batches, and sent to the leaders of their partitions."""
