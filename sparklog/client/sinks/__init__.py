"""The client for batches that many writers write together, each batch once."""
