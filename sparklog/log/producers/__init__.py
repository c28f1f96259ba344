"""What a log knows of its producers: their last batches, snapshots of them, recovery."""
