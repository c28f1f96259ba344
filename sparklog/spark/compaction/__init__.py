"""Compaction of partitions in Spark tasks: the newest record of each key, and the segments rewritten."""
