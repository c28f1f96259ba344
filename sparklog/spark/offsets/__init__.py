"""The offsets topic as Delta tables, and as snapshots that coordinators load."""
