"""The log directories of a broker: their logs, checkpoints, free space and owners."""
