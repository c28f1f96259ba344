"""Consumer groups: their members, the partitions that each member reads, and the committed offsets."""
