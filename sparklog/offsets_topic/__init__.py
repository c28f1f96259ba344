"""The content of Kafka's internal topics: the bytes of keys and values, as values, as columns and as text."""
