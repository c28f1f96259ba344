"""Snapshots of the newest record of each key, beside the segments of a compacted partition."""
