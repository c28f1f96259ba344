"""Record batches: Kafka's bytes, and conversion to and from Arrow columns."""
