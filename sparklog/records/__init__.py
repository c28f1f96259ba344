"""Record batches: Kafka's bytes, and Arrow columns in and out of them."""
