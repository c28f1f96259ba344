"""The Kafka door: listeners that speak Apache Kafka's wire protocol, over the same handlers as gRPC."""
