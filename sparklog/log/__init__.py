"""The log: segments and their indexes in a partition's folder, as Apache Kafka lays them out, and what manages them."""
