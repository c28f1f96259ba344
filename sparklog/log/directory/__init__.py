"""The log directories of a broker: all logs in them, checkpoints, room, owners."""
