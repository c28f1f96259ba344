"""The replacement of closed segments with the segments that a cleaner made."""
