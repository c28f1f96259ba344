"""The Kafka listeners: they speak Apache Kafka's wire protocol, over the same handlers as gRPC."""
