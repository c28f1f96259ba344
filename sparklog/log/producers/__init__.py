"""The producer state of a log: the producers' last batches, snapshots of them, and recovery."""
