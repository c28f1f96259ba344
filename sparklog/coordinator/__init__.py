"""What coordinators share: a topic whose partitions this broker leads, and a shard of state for each of them."""
