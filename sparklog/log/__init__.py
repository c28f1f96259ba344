"""The log: segments and their indexes in a partition's folder, laid out as in Apache Kafka, and their management."""
