"""The producer: gathers records in batches, and sends them to the leaders of their partitions."""
