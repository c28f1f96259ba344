"""Which partitions compaction is due for, and which of their segments it takes. Pure."""
