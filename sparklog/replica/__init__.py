"""The partitions that this broker has a replica of: what is committed, and the logs below."""
