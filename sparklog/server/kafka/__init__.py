"""The Kafka listeners: Apache Kafka's wire protocol, served by the same handlers as gRPC."""
